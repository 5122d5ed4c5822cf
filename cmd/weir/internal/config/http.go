package config

import (
	"fmt"
	"regexp"
	"strings"
)

// HTTP says which clients may use the HTTP interface besides the bearer of WEIR_HTTP_TOKEN, and by which host names
// they reach it.
type HTTP struct {
	Tokens []NamedToken // sorted by name
	Hosts  []string     // in lower case, without a port
}

// NamedToken is the token of a user or a program.
type NamedToken struct {
	Name  string
	Role  HTTPRole
	Token Template // a single reference; Bearer resolves it anew each time
}

// HTTPRole is what the bearer of a token may do: a closed set.
type HTTPRole string

// The roles. An operator may do everything that the other roles may.
const (
	RoleProducer HTTPRole = "producer" // submit jobs, and ask for their state
	RoleViewer   HTTPRole = "viewer"   // see everything except the bodies of jobs
	RoleOperator HTTPRole = "operator"
)

const (
	mostTokens = 64
	mostHosts  = 64
)

// Bearer returns the present token. It reads a variable or a file on each call. The error contains no part of the
// token.
func (t NamedToken) Bearer() (string, error) {
	text, err := t.Token.Resolve()
	if err == nil && !isBearer(text) {
		err = fmt.Errorf("%s is not a bearer token: %s", t.Token, bearerFix)
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

func (h *HTTP) section() section {
	return section{fields: []field{
		{
			name: "tokens", otherwise: "none",
			is: named(&h.Tokens, mostTokens, "NAME", (*NamedToken).section, func(t *NamedToken) *string { return &t.Name }),
			means: "the tokens of the HTTP interface, besides `WEIR_HTTP_TOKEN`. Once one is configured, requests without a token are " +
				"refused on a loopback address too",
		},
		{
			name: "hosts", is: many(&h.Hosts, mostHosts, free("at most 64 names, without a port", hostName)), otherwise: "none",
			means: "the host names of weir. On a loopback address weir accepts them and this machine's own names. Elsewhere it accepts them and " +
				"IP addresses, or any name if none is configured",
		},
	}}
}

func (t *NamedToken) section() section {
	return section{
		fields: []field{
			{
				name: "role", is: one(&t.Role, word(RoleProducer, RoleViewer, RoleOperator)), needs: "write role: producer, viewer or operator",
				means: "a producer submits jobs and asks what became of them; a viewer reads everything but bodies; an operator may do everything",
			},
			{
				name: "token", is: secret(&t.Token, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
					_, err := t.Bearer()
					return err
				}), needs: "write token: ${env:NAME} or ${file:/path}",
				means: "the token: 16 to 256 letters, digits and `-._~+/=`. weir reads it every second, under the same restrictions as an " +
					"API's `headers`",
			},
		},
	}
}

// tokenReference reads a reference to a token. Its errors do not quote the text, which may be the token itself.
func tokenReference(text string) (Template, error) {
	t, err := ParseTemplate(text)
	if err == nil && (len(t.parts) != 1 || !t.HasReference()) {
		err = refuse("write one ${env:NAME} or ${file:/path} in its place", "a secret must not stand in the file")
	}
	return t, err
}

// hostName reads a host name by which browsers and clients reach weir.
func hostName(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`).MatchString(text) {
		return "", refuse("write a name like weir.example.com, without a port", "%s is no host's name", quote(text))
	}
	return strings.ToLower(text), nil
}

// bearerToken reads the token itself, or a reference to it. It resolves the reference once, so a new token needs a
// restart. Its errors do not quote the text.
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

// bearerFix says what a token must be. Sixteen random characters cannot be guessed at any speed.
const bearerFix = "write 16 to 256 letters, digits and -._~+/=, as openssl rand -hex 32 makes them"

func isBearer(text string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,256}$`).MatchString(text)
}
