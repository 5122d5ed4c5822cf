package fakeapi

import (
	"net/http"
	"net/url"
	"strings"
)

// OrderHeader carries a client's order for its own request, in the words of ParseBehaviour. A client that cannot set headers puts
// the same orders into the query, each name prefixed with "fake-": /charge?fake-status=503&fake-retry-after=2. The header wins over
// the query, and either over the script.
const OrderHeader = "X-Fake"

const orderPrefix = "fake-"

// ordered returns the behaviour a request orders for itself; ok is false if it orders none.
func ordered(r *http.Request, query string) (b Behaviour, ok bool, err error) {
	if text := r.Header.Get(OrderHeader); text != "" {
		b, err = ParseBehaviour(text)
		return b, true, err
	}
	if !strings.Contains(query, orderPrefix) {
		return Behaviour{}, false, nil
	}
	for param := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(param, "=")
		name, found := strings.CutPrefix(name, orderPrefix)
		if !found {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return b, true, err
		}
		if err = b.order(name, value); err != nil {
			return b, true, err
		}
		ok = true
	}
	return b, ok, b.validate()
}
