package config

import (
	"cmp"
	"net/textproto"
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// Header is a header that weir adds to every call of an api.
type Header struct {
	Name  string // in canonical form
	Value secret.Template
}

const (
	mostHeaders = 64
	longestName = 128 // bytes of a header's name or a key
)

// isToken reports whether text is an RFC 9110 token, as methods and header names must be.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// headerName reads a header's name and keeps its case.
func headerName(text string) (string, error) {
	if !isToken(text) || len(text) > longestName {
		return "",
			problem.Refuse("write letters, digits and - only, at most 128", "%s cannot be a header's name", problem.Quote(text))
	}
	return text, nil
}

// sentHeader reads the name of a header that weir sends to the api, and returns its canonical form. It refuses headers
// of framing and of the connection, which weir sets itself.
func sentHeader(text string) (string, error) {
	if _, err := headerName(text); err != nil {
		return "", err
	}
	name := textproto.CanonicalMIMEHeaderKey(text)
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Keep-Alive":
		return "", problem.Refuse("remove it", "%s is set by weir for each connection", text)
	}
	if strings.HasPrefix(name, "Proxy-") {
		return "", problem.Refuse("remove it", "%s is for proxies, not for the api", text)
	}
	return name, nil
}

// forwardedHeader reads the name of a header that a job may set. It refuses headers that carry the api's credentials,
// and headers meant for weir or NATS.
func forwardedHeader(text string) (string, error) {
	name, err := sentHeader(text)
	if err != nil {
		return "", err
	}
	switch {
	case name == "Authorization" || name == "Cookie":
		return "",
			problem.Refuse("configure it under headers, by reference", "%s is a credential: a job must not carry it", text)
	case strings.HasPrefix(name, "Nats-") || strings.HasPrefix(name, "Weir-"):
		return "",
			problem.Refuse("give the api's header another name", "%s speaks to NATS or weir and is not sent to apis", text)
	}
	return name, nil
}

// isSecretName reports whether a header of this name usually carries a secret. Such a value must not stand in the file.
func isSecretName(name string) bool {
	lower := strings.ToLower(name)
	for _, word := range []string{"authorization", "cookie", "key", "token", "secret", "password", "credential"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}

// headers returns the kind of the headers that every call sends.
func headers(at *[]Header) field.Kind {
	return field.Kind{
		Words: "a mapping, at most 64", Shape: func(field.Object) field.Object {
			return field.Object{
				"type": []string{"object", "null"}, "maxProperties": mostHeaders,
				"additionalProperties": field.Object{"type": []string{"string", "number", "boolean"}},
			}
		},
		Read: func(v field.Value, _ string) field.Texts {
			*at = nil
			all, paths := field.Texts{}, map[string]string{}
			entries, _ := v.Entries(mostHeaders)
			for _, e := range entries {
				if h, ok := readHeader(e, paths); ok {
					all[field.JoinPath("", h.Name)] = field.Text{Text: cmp.Or(h.Value.String(), `""`), From: e.Origin()}
					*at = append(*at, h)
				}
			}
			return all
		},
	}
}

// readHeader reads one header. paths maps the names of the headers before it to their places, so that it can refuse a
// duplicate.
func readHeader(e field.Entry, paths map[string]string) (Header, bool) {
	name, err := sentHeader(e.Name)
	if err != nil {
		e.FailWith(err)
		return Header{}, false
	}
	if first, twice := paths[name]; twice {
		e.Fail("is the same header as "+first, "remove one of them")
		return Header{}, false
	}
	text, ok := e.Scalar()
	if !ok {
		return Header{}, false
	}
	t, err := secret.ParseTemplate(text)
	if err != nil {
		e.FailWith(err)
		return Header{}, false
	}
	if isSecretName(name) && !t.HasReference() {
		e.Fail("a secret must not stand in the file", "write ${env:NAME} or ${file:/path} in its place")
		return Header{}, false
	}
	paths[name] = e.Path
	e.Refer(field.Reference{Parts: t.References(), Resolve: true})
	return Header{Name: name, Value: t}, true
}

func indexHeader(headers []Header, name string) int {
	for i, h := range headers {
		if h.Name == name {
			return i
		}
	}
	return -1
}
