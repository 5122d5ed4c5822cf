package fakeapi

import (
	"net/http"
	"net/url"
	"strings"
)

// OrderHeader is the header with a client's order for its own request, as ParseBehaviour reads it. A client that cannot
// set headers puts the orders into the query, each name with the prefix "fake-":
// /charge?fake-status=503&fake-retry-after=2. The header wins over the query, and both win over the script.
const OrderHeader = "X-Fake"

const orderPrefix = "fake-"

// ordered returns the behaviour that a request orders. ok is false if it orders none.
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
