package config

import "regexp"

// bearerToken reads the token itself, or a reference to it. It is resolved once: a new token needs a restart. No
// message quotes it.
func bearerToken(text string) (Secret, error) {
	template, err := ParseTemplate(text)
	if err != nil {
		return Secret{}, err
	}
	token, err := template.Resolve()
	if err != nil {
		return Secret{}, refuse("let the reference name a file or variable that this process can read", "%s", err)
	}
	if !isBearer(token) {
		return Secret{}, refuse(bearerFix+", or ${file:/path}", "is no bearer token")
	}
	return Secret{text: token}, nil
}

// bearerFix says what a token must be. Sixteen characters cannot be guessed, at whatever speed.
const bearerFix = "write 16 to 256 letters, digits and -._~+/=, as openssl rand -hex 32 makes them"

func isBearer(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,256}$`).MatchString(text)
}

// inboxPrefix reads the beginning of the subjects on which answers arrive. NATS itself accepts no wildcard there.
func inboxPrefix(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`).MatchString(text) {
		return "", refuse("write tokens of letters, digits, '-' and '_' with dots between, as in _INBOX.worker",
			"%s is no prefix of subjects", quote(text))
	}
	return text, nil
}
