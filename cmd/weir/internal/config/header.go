package config

import (
	"cmp"
	"net/textproto"
	"strings"
)

// Header is a header that weir adds to every call of an api.
type Header struct {
	Name  string // in canonical form
	Value Template
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
		return "", refuse("write letters, digits and - only, at most 128", "%s cannot be a header's name", quote(text))
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
		return "", refuse("remove it", "%s is set by weir for each connection", text)
	}
	if strings.HasPrefix(name, "Proxy-") {
		return "", refuse("remove it", "%s is for proxies, not for the api", text)
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
		return "", refuse("configure it under headers, by reference", "%s is a credential: a job must not carry it", text)
	case strings.HasPrefix(name, "Nats-") || strings.HasPrefix(name, "Weir-"):
		return "", refuse("give the api's header another name", "%s speaks to NATS or weir and is not sent to apis", text)
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
func headers(at *[]Header) kind {
	return kind{
		words: "a mapping, at most 64", shape: func(object) object {
			return object{
				"type": []string{"object", "null"}, "maxProperties": mostHeaders,
				"additionalProperties": object{"type": []string{"string", "number", "boolean"}},
			}
		},
		read: func(v value, _ string) texts {
			*at = nil
			all, paths := texts{}, map[string]string{}
			entries, _ := v.entries(mostHeaders)
			for _, e := range entries {
				if h, ok := readHeader(e, paths); ok {
					all[joinPath("", h.Name)] = text{text: cmp.Or(h.Value.String(), `""`), from: e.origin()}
					*at = append(*at, h)
				}
			}
			return all
		},
	}
}

// readHeader reads one header. paths maps the names of the headers before it to their places, so that it can refuse a
// duplicate.
func readHeader(e entry, paths map[string]string) (Header, bool) {
	name, err := sentHeader(e.name)
	if err != nil {
		e.failWith(err)
		return Header{}, false
	}
	if first, twice := paths[name]; twice {
		e.fail("is the same header as "+first, "remove one of them")
		return Header{}, false
	}
	text, ok := e.scalar()
	if !ok {
		return Header{}, false
	}
	t, err := ParseTemplate(text)
	if err != nil {
		e.failWith(err)
		return Header{}, false
	}
	if isSecretName(name) && !t.HasReference() {
		e.fail("a secret must not stand in the file", "write ${env:NAME} or ${file:/path} in its place")
		return Header{}, false
	}
	paths[name] = e.path
	e.refer(reference{parts: t.parts, resolve: true})
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
