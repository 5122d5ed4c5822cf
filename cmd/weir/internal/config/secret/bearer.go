package secret

import "regexp"

// BearerFix says what a token must be. Sixteen random characters cannot be guessed at any speed.
const BearerFix = "write 16 to 256 letters, digits and -._~+/=, as openssl rand -hex 32 makes them"

// IsBearer reports whether a text can be the token of an HTTP request.
func IsBearer(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,256}$`).MatchString(text)
}
