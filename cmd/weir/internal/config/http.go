package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// HTTP says which clients may use the HTTP side, besides the bearer of WEIR_HTTP_TOKEN, and by which names they reach
// it.
type HTTP struct {
	Tokens []NamedToken // sorted by name
	Hosts  []string     // in lower case, without a port
}

// NamedToken is the token of a user or a program.
type NamedToken struct {
	Name  string
	Role  HTTPRole
	Token Template // one reference, resolved anew each time, see Bearer

	line int
	path string
}

// HTTPRole is what the bearer of a token may do: a closed set.
type HTTPRole string

// The roles. An operator may do what all others may.
const (
	RoleProducer HTTPRole = "producer" // submit jobs, and ask what became of them
	RoleViewer   HTTPRole = "viewer"   // view everything but the bodies of jobs
	RoleOperator HTTPRole = "operator"
)

const (
	mostTokens = 64
	mostHosts  = 64
)

// Bearer returns the present token. It reads a variable or a file. The error never contains any part of it.
func (t NamedToken) Bearer() (string, error) {
	text, err := t.Token.Resolve()
	if err == nil && !isBearer(text) {
		err = fmt.Errorf("%s is no bearer token: %s", t.Token, bearerFix)
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

func readHTTP(v value) (h HTTP) {
	f, ok := v.fields("tokens", "hosts")
	if !ok {
		return h
	}
	h.Hosts = readList(f, "hosts", mostHosts, hostName)
	var entries []entry
	if tokens, ok := f.byName["tokens"]; ok {
		entries, _ = tokens.entries(mostTokens)
	}
	for _, e := range entries {
		h.Tokens = append(h.Tokens, readNamedToken(e))
	}
	slices.SortFunc(h.Tokens, func(a, b NamedToken) int { return strings.Compare(a.Name, b.Name) })
	return h
}

func readNamedToken(e entry) NamedToken {
	t := NamedToken{Name: e.name, line: e.line, path: e.path}
	if _, err := name(e.name); err != nil {
		e.failWith(err)
	}
	f, ok := e.fields("role", "token")
	if !ok {
		return t
	}
	f.require("role", "write role: producer, viewer or operator")
	f.require("token", "write token: ${env:NAME} or ${file:/path}")
	t.Role = read(f, "role", t.Role, oneOf(RoleProducer, RoleViewer, RoleOperator))
	t.Token = read(f, "token", t.Token, tokenReference)
	return t
}

// tokenReference reads a reference to a token. No message quotes it.
func tokenReference(text string) (Template, error) {
	t, err := ParseTemplate(text)
	if err == nil && (len(t.parts) != 1 || !t.HasReference()) {
		err = refuse("write one ${env:NAME} or ${file:/path} in its place", "a secret must not stand in the file")
	}
	return t, err
}

// hostName reads a name that browsers and clients reach weir by.
func hostName(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`).MatchString(text) {
		return "", refuse("write a name like weir.example.com, without a port", "%s is no host's name", quote(text))
	}
	return strings.ToLower(text), nil
}

// missing returns why the token cannot be read on this machine.
func (t NamedToken) missing(scope *SecretScope) []Problem {
	problems := Header{Value: t.Token, line: t.line, path: t.path}.missing(scope)
	if len(problems) > 0 {
		return problems
	}
	if _, err := t.Bearer(); err != nil {
		problems = append(problems, Problem{Line: t.line, Path: t.path, Message: err.Error(), Fix: "provide it where weir serve runs"})
	}
	return problems
}

func (d description) http(h HTTP) {
	for _, t := range h.Tokens {
		path := joinPath("http.tokens", t.Name)
		d.set(path, "role", string(t.Role))
		d.set(path, "token", t.Token.String())
	}
	if len(h.Hosts) > 0 {
		d.set("http", "hosts", strings.Join(h.Hosts, ", "))
	}
}
