package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/bucket"
)

// API is one paid downstream: how to call it and what it may be asked for.
type API struct {
	Name           string
	URL            *url.URL // scheme, host and base path, without a slash at its end
	Methods        []string // what a job may ask for, at least one; the first is the default
	Headers        []Header // sent with every call, applied last; in the order of the file
	ForwardHeaders []string // what a job may add, in canonical form
	Timeout        time.Duration
	MaxBody        int64 // bytes of a job's body
	Price          Money // of one call; 0 when unknown
	Idempotency    *Idempotency
	Key            KeySource
	Rules          bucket.Rules // the overrides are sorted, the most exact pattern first
	Retry          Retry
	Breaker        Breaker
	Inquiry        *Inquiry
	TLS            *TLS // nil: the machine's authorities

	line int // of its name in the file
}

// Idempotency says that the api processes a job once however often it is sent. A nil *Idempotency says it does not.
type Idempotency struct {
	Header string // gets the job's id, in canonical form
	Quoted bool   // the id is sent as a structured-field string: in double quotes
}

// Allows reports whether a job may ask for a method.
func (a *API) Allows(method string) bool { return slices.Contains(a.Methods, method) }

// Forwards reports whether a job may add a header, in any case.
func (a *API) Forwards(header string) bool {
	return slices.ContainsFunc(a.ForwardHeaders, func(h string) bool { return strings.EqualFold(h, header) })
}

func readAPI(e entry) API {
	a := API{Name: e.name, Methods: []string{"POST"}, line: e.line}
	if _, err := name(e.name); err != nil {
		e.failWith(err)
	} else if e.name == "_" {
		e.fail("_ stands for an unknown api in the subjects of dead letters", "give it another name")
	}
	f, ok := e.fields("url", "methods", "headers", "forward_headers", "timeout", "max_body", "price", "idempotency",
		"key", "bucket", "limits", "admit", "keys", "retry", "breaker", "inquiry", "headroom", "jitter", "tls")
	if !ok {
		return a
	}
	f.require("url", "write url: https://api.example.com/v2")
	before := len(e.doc.problems)
	a.URL = read(f, "url", nil, parseURL)
	if f.has("methods") {
		a.Methods = readMethods(f)
	}
	a.Timeout = read(f, "timeout", 30*time.Second, durationIn(time.Millisecond, time.Hour))
	a.MaxBody = read(f, "max_body", 256<<10, sizeIn(1, maxBody))
	a.Price = read(f, "price", 0, ParseMoney)
	readRequestHeaders(f, &a)
	warnOfPlainText(f, &a)
	a.Key = KeySource{From: KeyFromSubject}
	if v, ok := f.byName["key"]; ok {
		a.Key = readKey(v)
	}
	a.Rules = readRules(f, a.Price, a.Timeout)
	a.Rules.TenantUntil = a.Key.TenantUntil
	if len(e.doc.problems) == before {
		checkRules(e.value, a.Rules)
	}
	a.Retry = readRetry(f, a.Rules)
	a.Breaker = readBreaker(f, a.Retry)
	a.Inquiry = readInquiry(f)
	a.TLS = readTLS(f, a.URL)
	return a
}

// warnOfPlainText warns of secrets that others on the network could read.
func warnOfPlainText(f fields, a *API) {
	if a.URL == nil || a.URL.Scheme != "http" || a.URL.Hostname() == "localhost" {
		return
	}
	if ip, err := netip.ParseAddr(a.URL.Hostname()); err == nil && ip.IsLoopback() {
		return
	}
	if slices.ContainsFunc(a.Headers, func(h Header) bool { return h.Value.HasReference() }) {
		f.place("url").warn("secrets go over the network in plain text", "write https")
	}
}

// checkRules checks the limits together. Problems of one field were reported before with their line. So this finds only
// what several fields cause together, such as a headroom that stretches a slow rate beyond any date.
func checkRules(v value, r bucket.Rules) {
	err := r.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			v.fail(each.Error(), "")
		}
	} else if err != nil {
		v.fail(err.Error(), "")
	}
}

func readMethods(f fields) []string {
	before := len(f.doc.problems)
	methods := readList(f, "methods", 16, func(text string) (string, error) {
		switch {
		case !isToken(text) || len(text) > 32:
			return "", refuse("write GET, POST, …", "%s cannot be a method", quote(text))
		case text != strings.ToUpper(text):
			return "", refuse("write "+strings.ToUpper(text), "%s is not in upper case", quote(text))
		case text == "CONNECT":
			return "", refuse("remove it", "CONNECT asks for a tunnel, not for an api's answer")
		}
		return text, nil
	})
	if len(methods) == 0 && len(f.doc.problems) == before {
		f.place("methods").fail("allows no method", "write one, or remove the field for [POST]")
	}
	return methods
}

// readRequestHeaders reads headers, forward_headers and idempotency, which must not contradict each other.
func readRequestHeaders(f fields, a *API) {
	if v, ok := f.byName["headers"]; ok {
		a.Headers = readHeaders(v)
	}
	a.ForwardHeaders = readList(f, "forward_headers", mostHeaders, forwardedHeader)
	for _, name := range a.ForwardHeaders {
		if indexHeader(a.Headers, name) >= 0 {
			f.place("forward_headers").warn(name+" stands under headers too, which wins", "remove it from one of them")
		}
	}
	v, ok := f.byName["idempotency"]
	if !ok {
		return
	}
	before := len(v.doc.problems)
	idem, _ := v.fields("header", "quoted")
	idem.require("header", "write {header: Idempotency-Key}")
	a.Idempotency = &Idempotency{
		Header: read(idem, "header", "", sentHeader),
		Quoted: read(idem, "quoted", false, yesOrNo),
	}
	if len(v.doc.problems) > before {
		return
	}
	if indexHeader(a.Headers, a.Idempotency.Header) >= 0 {
		idem.place("header").fail(a.Idempotency.Header+" stands under headers too, and would replace the job's id",
			"remove it there")
	}
	if slices.Contains(a.ForwardHeaders, a.Idempotency.Header) {
		idem.place("header").fail(a.Idempotency.Header+" stands in forward_headers too: a job could replace its id",
			"remove it there")
	}
}

// parseURL reads an api's base url. Messages do not quote it: it may carry a password.
func parseURL(text string) (*url.URL, error) {
	const fix = "write url: https://host/base/path"
	u, err := url.Parse(strings.TrimRight(text, "/"))
	switch {
	case err != nil || strings.ContainsAny(text, " \t"):
		return nil, refuse(fix, "is not a url")
	case u.User != nil:
		return nil, refuse("configure credentials under headers, by reference", "has a user or password")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse(fix, "has no scheme http or https")
	case u.Hostname() == "":
		return nil, refuse(fix, "has no host")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, refuse("a job brings its query with Weir-Query", "has a query")
	case strings.Contains(text, "#"):
		return nil, refuse("remove it", "has a fragment, which is never sent")
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool { return s == "." || s == ".." }):
		return nil, refuse("write the path without . and ..", "has a path that climbs")
	case strings.HasSuffix(u.Host, ":") || !isPort(u.Port(), 1):
		return nil, refuse("write a port from 1 to 65535, or none", "has an impossible port")
	}
	return u, nil
}
