package config

import (
	"net/textproto"
	"strings"
)

// Header is a header that weir adds to every call of an api.
type Header struct {
	Name  string // in canonical form
	Value Template

	line int
	path string
}

const (
	mostHeaders = 64
	longestName = 128 // bytes of a header's name or a key
)

// isToken says whether text is an RFC 9110 token: what a method or a header's name may be.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// headerName reads a header's name, as written.
func headerName(text string) (string, error) {
	if !isToken(text) || len(text) > longestName {
		return "", refuse("write letters, digits and - only, at most 128", "%s cannot be a header's name", quote(text))
	}
	return text, nil
}

// sentHeader reads the name of a header that goes to the api, in canonical form. It refuses headers that frame the
// request or concern the connection: weir sets those.
func sentHeader(text string) (string, error) {
	if _, err := headerName(text); err != nil {
		return "", err
	}
	name := textproto.CanonicalMIMEHeaderKey(text)
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Keep-Alive":
		return "", refuse("remove it", "%s is set by weir for each connection", text)
	}
	if strings.HasPrefix(name, "Proxy-") {
		return "", refuse("remove it", "%s is for proxies, not for the api", text)
	}
	return name, nil
}

// forwardedHeader reads the name of a header that a job may add: not one that carries the api's credentials, nor one
// that speaks to weir or NATS.
func forwardedHeader(text string) (string, error) {
	name, err := sentHeader(text)
	if err != nil {
		return "", err
	}
	switch {
	case name == "Authorization" || name == "Cookie":
		return "", refuse("configure it under headers, by reference", "%s is a credential: a job must not carry it", text)
	case strings.HasPrefix(name, "Nats-") || strings.HasPrefix(name, "Weir-"):
		return "", refuse("give the api's header another name", "%s speaks to NATS or weir and is not sent to apis", text)
	}
	return name, nil
}

// isSecretName reports whether a header of this name carries a secret, whose value must not be in the file.
func isSecretName(name string) bool {
	lower := strings.ToLower(name)
	for _, word := range []string{"authorization", "cookie", "key", "token", "secret", "password", "credential"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}

// readHeaders reads the headers of every call.
func readHeaders(v value) []Header {
	entries, _ := v.entries(mostHeaders)
	headers := make([]Header, 0, len(entries))
	for _, e := range entries {
		name, err := sentHeader(e.name)
		if err != nil {
			e.failWith(err)
			continue
		}
		if i := indexHeader(headers, name); i >= 0 {
			e.fail("is the same header as "+headers[i].path, "remove one of them")
			continue
		}
		text, ok := e.scalar()
		if !ok {
			continue
		}
		t, err := ParseTemplate(text)
		if err != nil {
			e.failWith(err)
			continue
		}
		if isSecretName(name) && !t.HasReference() {
			e.fail("a secret must not stand in the file", "write ${env:NAME} or ${file:/path} in its place")
			continue
		}
		headers = append(headers, Header{Name: name, Value: t, line: e.line, path: e.path})
	}
	return headers
}

func indexHeader(headers []Header, name string) int {
	for i, h := range headers {
		if h.Name == name {
			return i
		}
	}
	return -1
}

// missing lists the header's references that do not resolve here, or that scope does not allow.
func (h Header) missing(scope *SecretScope) []Problem {
	var problems []Problem
	for _, p := range h.Value.parts {
		if !scope.allows(p) {
			problems = append(problems, Problem{
				Line: h.line, Path: h.path, Message: Template{parts: []part{p}}.String() + " is allowed neither by the file that weir was started with nor by WEIR_SECRETS",
				Fix: "name it in WEIR_SECRETS where weir serve runs, or in its own file",
			})
			continue
		}
		if _, err := p.resolve(); err != nil {
			problems = append(problems, Problem{
				Line: h.line, Path: h.path, Message: err.Error(), Fix: "provide it where weir serve runs",
			})
		}
	}
	return problems
}
