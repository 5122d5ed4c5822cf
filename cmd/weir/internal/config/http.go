package config

import (
	"fmt"
	"regexp"
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
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
	Token secret.Template // a single reference; Bearer resolves it anew each time
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
	if err == nil && !secret.IsBearer(text) {
		err = fmt.Errorf("%s is not a bearer token: %s", t.Token, secret.BearerFix)
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

func (h *HTTP) section() field.Section {
	return field.Section{Fields: []field.Field{
		{
			Name: "tokens", Otherwise: "none",
			Is: field.Named(&h.Tokens, mostTokens, "NAME", (*NamedToken).section,
				func(t *NamedToken) *string { return &t.Name }),
			Means: "the tokens of the HTTP interface, besides `WEIR_HTTP_TOKEN`. Once one is configured, requests without a " +
				"token are refused on a loopback address too",
		},
		{
			Name:      "hosts",
			Is:        field.Many(&h.Hosts, mostHosts, field.Free("at most 64 names, without a port", hostName)),
			Otherwise: "none",
			Means: "the host names of weir. On a loopback address weir accepts them and this machine's own names. Elsewhere " +
				"it accepts them and IP addresses, or any name if none is configured",
		},
	}}
}

func (t *NamedToken) section() field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "role",
				Is:    field.One(&t.Role, field.Word(RoleProducer, RoleViewer, RoleOperator)),
				Needs: "write role: producer, viewer or operator",
				Means: "a producer submits jobs and asks what became of them; a viewer reads everything but bodies; an operator " +
					"may do everything",
			},
			{
				Name: "token", Is: field.Secret(&t.Token, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
					_, err := t.Bearer()
					return err
				}), Needs: "write token: ${env:NAME} or ${file:/path}",
				Means: "the token: 16 to 256 letters, digits and `-._~+/=`. weir reads it every second, under the same " +
					"restrictions as an API's `headers`",
			},
		},
	}
}

// tokenReference reads a reference to a token. Its errors do not quote the text, which may be the token itself.
func tokenReference(text string) (secret.Template, error) {
	t, err := secret.ParseTemplate(text)
	if err == nil && !t.IsReference() {
		err = problem.Refuse("write one ${env:NAME} or ${file:/path} in its place", "a secret must not stand in the file")
	}
	return t, err
}

// hostName reads a host name by which browsers and clients reach weir.
func hostName(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`).MatchString(text) {
		return "",
			problem.Refuse("write a name like weir.example.com, without a port", "%s is no host's name", problem.Quote(text))
	}
	return strings.ToLower(text), nil
}
