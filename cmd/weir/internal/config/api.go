package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/vendors"
	"weir/ingest"
)

// API is one downstream API: how weir calls it, and which calls a job may ask for.
type API struct {
	Name           string
	Vendor         vendors.Choice
	Account        string   // "" for none
	Weight         int64    // the api's share of the account's turns
	URL            *url.URL // scheme, host and base path, without a slash at its end
	Methods        []string // that a job may ask for, at least one; the first is the default
	Headers        []Header // sent with every call, applied last; in the order of the file
	ForwardHeaders []string // that a job may set, in canonical form
	Timeout        time.Duration
	IdleTimeout    time.Duration // longest wait for the next byte of an answer; 0: only Timeout bounds it
	MaxBody        int64         // bytes of a job's body
	Price          grammar.Money // of a usual call; 0 if unknown
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
func (a *API) section(accounts *[]Account) field.Section {
	r := &a.Rules
	return field.Section{
		Fill: func(v field.Value) field.Value { return vendors.Filled(v, mostShared) },
		Fields: slices.Concat([]field.Field{
			{
				Name: "vendor", Is: field.Shorthand(a.Vendor.Section), Otherwise: "none",
				Means: "whose API it is. What that vendor documents is then the default of other fields ([vendors](vendors.md))",
			},
			{
				Name:      "account",
				Is:        field.One(&a.Account, field.OrEmpty(field.Free("the name of an account", grammar.ParseName))),
				Otherwise: "none",
				Means: "the account that the API shares with others. Its limits count for this API's calls too " +
					"([accounts](accounts.md))",
			},
			{
				Name: "weight", Is: field.One(&a.Weight, field.Whole[int64](1, bucket.MostWeight)), Or: "1",
				Means: "the part of the account's turns that the API gets while other APIs of the account wait too",
			},
			{
				Name: "url", Needs: "write url: https://api.example.com/v2",
				Is: field.One(&a.URL,
					field.Address("scheme, host and base path; `http` or `https`; no user, query or fragment", parseURL)),
				Means: "the API's address. A job can only add a path below it",
			},
			{
				Name:  "methods",
				Is:    field.Many(&a.Methods, 16, field.Free("1 to 16 HTTP methods in upper case", method)),
				Or:    "[POST]",
				Means: "the methods that a job may name; the first is the default",
			},
			{
				Name: "headers", Is: headers(&a.Headers), Otherwise: "none",
				Means: "headers of every call, applied last. Refer to a secret with `${env:NAME}` or `${file:/path}`; weir reads " +
					"it for every call. A configuration that came over NATS may only use references that the replica's own file has " +
					"too, or that `WEIR_SECRETS` in its [environment](environment.md) allows",
			},
			{
				Name:      "forward_headers",
				Is:        field.Many(&a.ForwardHeaders, mostHeaders, field.Free("at most 64 names", forwardedHeader)),
				Otherwise: "none",
				Means: "headers that a job may add with `Weir-Header-<Name>`, and `Content-Type`. Credentials and names that " +
					"begin with `Nats-` or `Weir-` are not allowed",
			},
			{
				Name: "timeout", Is: field.One(&a.Timeout, field.Duration(time.Millisecond, time.Hour)), Or: "30s",
				Means: "the time limit of a call, to the end of its answer",
			},
			{
				Name:      "idle_timeout",
				Is:        field.One(&a.IdleTimeout, field.OrEmpty(field.Duration(time.Millisecond, time.Hour))),
				Otherwise: "none",
				Means:     "the longest time without a byte of an answer that has begun. An answer that stops counts as a timeout",
			},
			{
				Name: "max_body", Is: field.One(&a.MaxBody, field.Size(1, maxBody)), Or: "256KiB",
				Means: "the largest body of a job; weir refuses a larger one with 413",
			},
			{
				Name: "usage", Is: usage(&a.Usage), Otherwise: "none",
				Means: "numbers in answers that weir adds up in the ledger, `weir spend` and the metrics, under names that you " +
					"choose ([ledger](ledger.md))",
			},
			{
				Name: "price", Is: price(&a.Prices, &a.Usage), Or: "0",
				Means: "the price of one call, for budgets and reports. If it is a list, a call costs the sum ([costs](costs.md))",
			},
			{
				Name:      "idempotency",
				Is:        field.Optional(&a.Idempotency, func(i *Idempotency) field.Section { return i.section(a) }),
				Otherwise: "none",
				Means: "how the API recognizes a repeated call. Absent: it bills a repeated call again " +
					"([idempotency](idempotency.md))",
			},
			{
				Name: "key", Is: field.Shorthand(a.Key.section), Otherwise: "`subject`",
				Means: "what divides the API's jobs into buckets",
			},
		}, rules(r, &a.Prices, &a.Usage), []field.Field{
			{
				Name: "retry", Is: field.Mapping(func() field.Section { return a.Retry.section(a) }),
				Means: "how weir repeats failed calls, and what pushback holds ([pushback](pushback.md))",
			},
			{
				Name:  "breaker",
				Is:    field.Mapping(func() field.Section { return a.Breaker.section(&a.Retry) }),
				Means: "when failures stop all calls",
			},
			{
				Name: "inquiry", Is: field.Optional(&a.Inquiry, (*Inquiry).section),
				Means: "how weir asks the API about a call with an unknown outcome",
			},
			{
				Name: "callback", Is: field.Optional(&a.Callback, (*Callback).section), Otherwise: "none",
				Means: "where weir posts each end of the API's jobs ([callbacks](callbacks.md))",
			},
			{
				Name: "operation", Is: field.Optional(&a.Operation, (*Operation).section),
				Means: "how weir polls an API that accepts a call and goes on working ([polling](polling.md))",
			},
			{
				Name:      "reuse",
				Is:        field.Optional(&a.Reuse, func(r *Reuse) field.Section { return r.section(a) }),
				Otherwise: "none",
				Means:     "when a job gets the answer of an equal job without a call ([reuse](reuse.md))",
			},
			{
				Name:      "pack",
				Is:        field.Optional(&a.Pack, func(p *Pack) field.Section { return p.section(a) }),
				Otherwise: "each call has one job",
				Means:     "how several jobs of a key go in one call ([packs](packs.md))",
			},
			{
				Name: "tls", Is: field.Optional(&a.TLS, func(t *TLS) field.Section { return t.section(a) }),
				Means: "the authorities that weir trusts for an `https` API, and weir's own certificate",
			},
		}),
		Relations: field.Object{"anyOf": []field.Object{
			required("vendor"), {"properties": field.Object{"idempotency": required("header")}},
		}},
		Check: func(f field.Fields) { a.check(f, *accounts) },
		Whole: func() string { return a.URL.String() + " at " + grammar.FormatRate(r.Key.Rate) },
	}
}

// check reports the problems that the api's fields cause together.
func (a *API) check(f field.Fields, accounts []Account) {
	if a.Name == "_" {
		f.Fail("_ stands for an unknown api in the subjects of dead letters", "give it another name")
	}
	if len(a.Methods) == 0 && f.Fine("methods") {
		f.Place("methods").Fail("allows no method", "write one, or remove the field for [POST]")
	}
	for _, name := range a.ForwardHeaders {
		if indexHeader(a.Headers, name) >= 0 {
			f.Place("forward_headers").Warn(name+" stands under headers too, which wins", "remove it from one of them")
		}
	}
	warnOfPlainText(f, a)
	a.splitLimits()
	a.join(f, accounts)
	if n := a.answerPointers(); n > ingest.MostPointers {
		f.Fail(fmt.Sprintf("settle and usage name %d places in an answer's body, and weir looks for at most %d", n,
			ingest.MostPointers),
			"write fewer, or let terms share a place")
	}
	if a.Retry.Hold == HoldAPI && !a.Retry.holdSet {
		account := ""
		if a.Account != "" {
			account = "{hold: account} if a 429 concerns all apis of the account, "
		}
		f.Absent("retry").Absent("hold").Note("one 429 to a call of one key holds all keys of the api, as they share a limit",
			"write retry: {hold: api} to keep that, "+account+
				"or {hold: key} if the api also answers 429 about one key alone, such as one phone number")
	}
	slices.SortFunc(a.Rules.Overrides, moreExact)
	a.Price = grammar.Money(a.Prices.Usual())
	a.Rules.TenantUntil = a.Key.TenantUntil
	a.Rules.Lease = a.Timeout + a.Rules.Jitter + leaseMargin
	if f.Clean() {
		checkRules(f.Value, a.Rules)
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
func warnOfPlainText(f field.Fields, a *API) {
	if a.URL == nil || a.URL.Scheme != "http" || grammar.OnThisMachine(a.URL.Hostname()) {
		return
	}
	if slices.ContainsFunc(a.Headers, func(h Header) bool { return h.Value.HasReference() }) {
		f.Place("url").Warn("secrets go over the network in plain text", "write https")
	}
}

// checkRules reports the problems that several limits cause together, such as a headroom that stretches a slow rate
// beyond any date. Problems of single fields were reported before, each on its line.
func checkRules(v field.Value, r bucket.Rules) {
	err := r.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			v.Fail(each.Error(), "")
		}
	} else if err != nil {
		v.Fail(err.Error(), "")
	}
}

// method reads an HTTP method that a job may ask for.
func method(text string) (string, error) {
	switch {
	case !isToken(text) || len(text) > 32:
		return "", problem.Refuse("write GET, POST, …", "%s cannot be a method", problem.Quote(text))
	case text != strings.ToUpper(text):
		return "", problem.Refuse("write "+strings.ToUpper(text), "%s is not in upper case", problem.Quote(text))
	case text == "CONNECT":
		return "", problem.Refuse("remove it", "CONNECT asks for a tunnel, not for an api's answer")
	}
	return text, nil
}

// section returns the fields of an api's idempotency. Its check refuses a header that contradicts the headers of the
// api.
func (i *Idempotency) section(a *API) field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "header",
				Is:    field.One(&i.Header, field.Free("a header's name", sentHeader)),
				Needs: "write {header: Idempotency-Key}",
				Means: "the header that carries the job's id with every attempt and every redrive",
			},
			{
				Name: "quoted", Is: field.One(&i.Quoted, field.Yes()), Or: "false",
				Means: "`true`: weir sends the id in double quotes, as the draft standard says",
			},
			{
				Name: "for", Is: field.One(&i.For, field.OrEmpty(field.Duration(10*time.Minute, longAge))), Otherwise: "no bound",
				Means: "how long the API remembers a key. A job whose first call may have been processed is not called again " +
					"after that time, but becomes a letter `unknown`",
			},
		},
		Check: func(f field.Fields) {
			if f.Clean() && indexHeader(a.Headers, i.Header) >= 0 {
				f.Place("header").Fail(i.Header+" stands under headers too, and would replace the job's id", "remove it there")
			}
			if f.Clean() && slices.Contains(a.ForwardHeaders, i.Header) {
				f.Place("header").Fail(i.Header+" stands in forward_headers too: a job could replace its id", "remove it there")
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
		return nil, problem.Refuse(fix, "is not a url")
	case u.User != nil:
		return nil, problem.Refuse("configure credentials under headers, by reference", "has a user or password")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, problem.Refuse(fix, "has no scheme http or https")
	case u.Hostname() == "":
		return nil, problem.Refuse(fix, "has no host")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, problem.Refuse("a job brings its query with Weir-Query", "has a query")
	case strings.Contains(text, "#"):
		return nil, problem.Refuse("remove it", "has a fragment, which is never sent")
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool { return s == "." || s == ".." }):
		return nil, problem.Refuse("write the path without . and ..", "has a path that climbs")
	case strings.HasSuffix(u.Host, ":") || !grammar.IsPort(u.Port(), 1):
		return nil, problem.Refuse("write a port from 1 to 65535, or none", "has an impossible port")
	}
	return u, nil
}
