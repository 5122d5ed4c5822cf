package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// API is one downstream API: how weir calls it, and which calls a job may ask for.
type API struct {
	Name           string
	Vendor         Vendor
	Account        string   // "" for none
	Weight         int64    // the api's share of the account's turns
	URL            *url.URL // scheme, host and base path, without a slash at its end
	Methods        []string // that a job may ask for, at least one; the first is the default
	Headers        []Header // sent with every call, applied last; in the order of the file
	ForwardHeaders []string // that a job may set, in canonical form
	Timeout        time.Duration
	IdleTimeout    time.Duration // longest wait for the next byte of an answer; 0: only Timeout bounds it
	MaxBody        int64         // bytes of a job's body
	Price          Money         // of a usual call; 0 if unknown
	Prices         ingest.Cost   // of a call, in millionths
	Usage          []Usage       // counters fed from answers
	Idempotency    *Idempotency
	Key            KeySource
	Rules          bucket.Rules // Overrides are sorted, the most exact pattern first
	Retry          Retry
	Breaker        Breaker
	Inquiry        *Inquiry
	Callback       *Callback
	Operation      *Operation // nil: the answer to a call ends the job
	Reuse          *Reuse     // nil: weir calls for every job
	Pack           *Pack      // nil: each call has one job
	TLS            *TLS       // nil: trust the machine's authorities
}

// Idempotency says how the api recognizes a repeated call, so that it processes a job only once. A nil *Idempotency
// means that it does not recognize one.
type Idempotency struct {
	Header string        // gets the job's id, in canonical form
	Quoted bool          // the id is sent as a structured-field string: in double quotes
	For    time.Duration // how long the api remembers a key; 0: always
}

// Allows reports whether a job may ask for a method.
func (a *API) Allows(method string) bool { return slices.Contains(a.Methods, method) }

// Forwards reports whether a job may set a header. It ignores case.
func (a *API) Forwards(header string) bool {
	return slices.ContainsFunc(a.ForwardHeaders, func(h string) bool { return strings.EqualFold(h, header) })
}

// section returns the fields of one api.
func (a *API) section(accounts *[]Account) section {
	r := &a.Rules
	return section{
		fill: func(v value) value { return v.doc.filled(v) },
		fields: slices.Concat([]field{
			{
				name: "vendor", is: shorthand(a.Vendor.section), otherwise: "none",
				means: "whose API it is. What that vendor documents is then the default of other fields ([vendors](vendors.md))",
			},
			{
				name: "account", is: one(&a.Account, orEmpty(free("the name of an account", parseName))), otherwise: "none",
				means: "the account that the API shares with others. Its limits count for this API's calls too ([accounts](accounts.md))",
			},
			{
				name: "weight", is: one(&a.Weight, whole[int64](1, bucket.MostWeight)), or: "1",
				means: "the part of the account's turns that the API gets while other APIs of the account wait too",
			},
			{
				name: "url", needs: "write url: https://api.example.com/v2",
				is:    one(&a.URL, address("scheme, host and base path; `http` or `https`; no user, query or fragment", parseURL)),
				means: "the API's address. A job can only add a path below it",
			},
			{
				name: "methods", is: many(&a.Methods, 16, free("1 to 16 HTTP methods in upper case", method)), or: "[POST]",
				means: "the methods that a job may name; the first is the default",
			},
			{
				name: "headers", is: headers(&a.Headers), otherwise: "none",
				means: "headers of every call, applied last. Refer to a secret with `${env:NAME}` or `${file:/path}`; weir reads it for " +
					"every call. A configuration that came over NATS may only use references that the replica's own file has too, or that " +
					"`WEIR_SECRETS` in its [environment](environment.md) allows",
			},
			{
				name: "forward_headers", is: many(&a.ForwardHeaders, mostHeaders, free("at most 64 names", forwardedHeader)), otherwise: "none",
				means: "headers that a job may add with `Weir-Header-<Name>`, and `Content-Type`. Credentials and names that begin with " +
					"`Nats-` or `Weir-` are not allowed",
			},
			{
				name: "timeout", is: one(&a.Timeout, duration(time.Millisecond, time.Hour)), or: "30s",
				means: "the time limit of a call, to the end of its answer",
			},
			{
				name: "idle_timeout", is: one(&a.IdleTimeout, orEmpty(duration(time.Millisecond, time.Hour))), otherwise: "none",
				means: "the longest time without a byte of an answer that has begun. An answer that stops counts as a timeout",
			},
			{
				name: "max_body", is: one(&a.MaxBody, size(1, maxBody)), or: "256KiB",
				means: "the largest body of a job; weir refuses a larger one with 413",
			},
			{
				name: "usage", is: usage(&a.Usage), otherwise: "none",
				means: "numbers in answers that weir adds up in the ledger, `weir spend` and the metrics, under names that you choose ([ledger](ledger.md))",
			},
			{
				name: "price", is: price(&a.Prices, &a.Usage), or: "0",
				means: "the price of one call, for budgets and reports. If it is a list, a call costs the sum ([costs](costs.md))",
			},
			{
				name: "idempotency", is: optional(&a.Idempotency, func(i *Idempotency) section { return i.section(a) }), otherwise: "none",
				means: "how the API recognizes a repeated call. Absent: it bills a repeated call again ([idempotency](idempotency.md))",
			},
			{
				name: "key", is: shorthand(a.Key.section), otherwise: "`subject`",
				means: "what divides the API's jobs into buckets",
			},
		}, rules(r, &a.Prices, &a.Usage), []field{
			{
				name: "retry", is: mapping(func() section { return a.Retry.section(a) }),
				means: "how weir repeats failed calls, and what pushback holds ([pushback](pushback.md))",
			},
			{name: "breaker", is: mapping(func() section { return a.Breaker.section(&a.Retry) }), means: "when failures stop all calls"},
			{
				name: "inquiry", is: optional(&a.Inquiry, (*Inquiry).section),
				means: "how weir asks the API about a call with an unknown outcome",
			},
			{
				name: "callback", is: optional(&a.Callback, (*Callback).section), otherwise: "none",
				means: "where weir posts each end of the API's jobs ([callbacks](callbacks.md))",
			},
			{
				name: "operation", is: optional(&a.Operation, (*Operation).section),
				means: "how weir polls an API that accepts a call and goes on working ([polling](polling.md))",
			},
			{
				name: "reuse", is: optional(&a.Reuse, func(r *Reuse) section { return r.section(a) }), otherwise: "none",
				means: "when a job gets the answer of an equal job without a call ([reuse](reuse.md))",
			},
			{
				name: "pack", is: optional(&a.Pack, func(p *Pack) section { return p.section(a) }), otherwise: "each call has one job",
				means: "how several jobs of a key go in one call ([packs](packs.md))",
			},
			{
				name: "tls", is: optional(&a.TLS, func(t *TLS) section { return t.section(a) }),
				means: "the authorities that weir trusts for an `https` API, and weir's own certificate",
			},
		}),
		relations: object{"anyOf": []object{
			required("vendor"), {"properties": object{"idempotency": required("header")}},
		}},
		check: func(f fields) { a.check(f, *accounts) },
		whole: func() string { return a.URL.String() + " at " + FormatRate(r.Key.Rate) },
	}
}

// check reports the problems that the api's fields cause together.
func (a *API) check(f fields, accounts []Account) {
	if a.Name == "_" {
		f.fail("_ stands for an unknown api in the subjects of dead letters", "give it another name")
	}
	if len(a.Methods) == 0 && f.fine("methods") {
		f.place("methods").fail("allows no method", "write one, or remove the field for [POST]")
	}
	for _, name := range a.ForwardHeaders {
		if indexHeader(a.Headers, name) >= 0 {
			f.place("forward_headers").warn(name+" stands under headers too, which wins", "remove it from one of them")
		}
	}
	warnOfPlainText(f, a)
	a.splitLimits()
	a.join(f, accounts)
	if n := a.answerPointers(); n > ingest.MostPointers {
		f.fail(fmt.Sprintf("settle and usage name %d places in an answer's body, and weir looks for at most %d", n, ingest.MostPointers),
			"write fewer, or let terms share a place")
	}
	if a.Retry.Hold == HoldAPI && !a.Retry.holdSet {
		account := ""
		if a.Account != "" {
			account = "{hold: account} if a 429 concerns all apis of the account, "
		}
		f.absent("retry").absent("hold").note("one 429 to a call of one key holds all keys of the api, as they share a limit",
			"write retry: {hold: api} to keep that, "+account+
				"or {hold: key} if the api also answers 429 about one key alone, such as one phone number")
	}
	slices.SortFunc(a.Rules.Overrides, moreExact)
	a.Price = Money(a.Prices.Usual())
	a.Rules.TenantUntil = a.Key.TenantUntil
	a.Rules.Lease = a.Timeout + a.Rules.Jitter + leaseMargin
	if f.clean() {
		checkRules(f.value, a.Rules)
	}
}

// splitLimits moves the limits that count on each replica by itself from Shared to Replica.
func (a *API) splitLimits() {
	r := &a.Rules
	for _, l := range r.Shared {
		if l.Replica {
			r.Replica = append(r.Replica, l)
		}
	}
	r.Shared = slices.DeleteFunc(r.Shared, func(l bucket.Limit) bool { return l.Replica })
}

// answerPointers returns how many different pointers into an answer's body settle or count a call.
func (a *API) answerPointers() int {
	places := map[string]bool{}
	add := func(at ingest.Source) {
		for place := range at.Places() {
			places[place.Pointer] = true
		}
	}
	costs := a.Prices
	for i := range a.Rules.Shared {
		costs = append(costs[:len(costs):len(costs)], a.Rules.Shared[i].Cost...)
	}
	for i := range costs {
		add(costs[i].Settle)
	}
	for i := range a.Usage {
		add(a.Usage[i].From)
	}
	delete(places, "")
	return len(places)
}

// warnOfPlainText warns if a call sends secrets over plain http to another machine.
func warnOfPlainText(f fields, a *API) {
	if a.URL == nil || a.URL.Scheme != "http" || onThisMachine(a.URL.Hostname()) {
		return
	}
	if slices.ContainsFunc(a.Headers, func(h Header) bool { return h.Value.HasReference() }) {
		f.place("url").warn("secrets go over the network in plain text", "write https")
	}
}

// checkRules reports the problems that several limits cause together, such as a headroom that stretches a slow rate
// beyond any date. Problems of single fields were reported before, each on its line.
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

// method reads an HTTP method that a job may ask for.
func method(text string) (string, error) {
	switch {
	case !isToken(text) || len(text) > 32:
		return "", refuse("write GET, POST, …", "%s cannot be a method", quote(text))
	case text != strings.ToUpper(text):
		return "", refuse("write "+strings.ToUpper(text), "%s is not in upper case", quote(text))
	case text == "CONNECT":
		return "", refuse("remove it", "CONNECT asks for a tunnel, not for an api's answer")
	}
	return text, nil
}

// section returns the fields of an api's idempotency. Its check refuses a header that contradicts the headers of the
// api.
func (i *Idempotency) section(a *API) section {
	return section{
		fields: []field{
			{
				name: "header", is: one(&i.Header, free("a header's name", sentHeader)), needs: "write {header: Idempotency-Key}",
				means: "the header that carries the job's id with every attempt and every redrive",
			},
			{
				name: "quoted", is: one(&i.Quoted, yes()), or: "false",
				means: "`true`: weir sends the id in double quotes, as the draft standard says",
			},
			{
				name: "for", is: one(&i.For, orEmpty(duration(10*time.Minute, longAge))), otherwise: "no bound",
				means: "how long the API remembers a key. A job whose first call may have been processed is not called again after that " +
					"time, but becomes a letter `unknown`",
			},
		},
		check: func(f fields) {
			if f.clean() && indexHeader(a.Headers, i.Header) >= 0 {
				f.place("header").fail(i.Header+" stands under headers too, and would replace the job's id", "remove it there")
			}
			if f.clean() && slices.Contains(a.ForwardHeaders, i.Header) {
				f.place("header").fail(i.Header+" stands in forward_headers too: a job could replace its id", "remove it there")
			}
		},
	}
}

// parseURL reads an api's base url. Its errors do not quote the text, which may hold a password.
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
