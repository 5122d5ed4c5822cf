package worker

import (
	"fmt"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// ingestRule returns the intake's rule for an api.
func ingestRule(a *config.API, c *config.Config) *ingest.Rule {
	rule := &ingest.Rule{
		API: a.Name, Methods: a.Methods, ForwardHeaders: a.ForwardHeaders, MaxBody: a.MaxBody, Costs: a.Rules.CostBounds(a.Prices),
		ReplyTo: ingest.ReplySubjects{Open: c.ReplyTo}, Packed: a.Pack.Rule(),
	}
	switch a.Key.From {
	case config.KeyFromHeader:
		rule.Key.Header = a.Key.Name
	case config.KeyFromJSON:
		rule.Key.Pointer = a.Key.Pointer
	}
	return rule
}

// DispatchAPI returns an api's configuration in the form that the dispatcher uses.
func DispatchAPI(a *config.API, c *config.Config) *httpcall.API {
	api := &httpcall.API{
		Name: a.Name, URL: a.URL, Timeout: a.Timeout, IdleTimeout: a.IdleTimeout, Price: int64(a.Price), Prices: a.Prices, Rule: ingestRule(a, c), Rules: a.CallRules(),
		MaxResult: c.Results.MaxBody, Headers: func() ([]ingest.HeaderField, error) { return resolve(a.Headers) },
		Credentials: credentials(a.Headers), Secrets: func() []string { return secrets(a.Headers) },
		Retry: httpcall.Retry{
			Attempts: a.Retry.Attempts, Min: a.Retry.Min, Max: a.Retry.Max, On: a.Retry.On, Reject: a.Retry.Reject, HoldAPI: a.Retry.Hold != config.HoldKey, HoldAccount: a.Retry.Hold == config.HoldAccount,
			Obey: a.Retry.Headers == config.ObeyHeaders,
		},
		Breaker: schedule.BreakerPolicy{Failures: a.Breaker.Failures, Min: a.Breaker.Min, Max: a.Breaker.Max},
	}
	api.Rules.Version = c.Version
	for _, u := range a.Usage {
		api.Usage = append(api.Usage, httpcall.UsageCounter{Name: u.Name, From: u.From})
	}
	if a.TLS != nil {
		api.Trust = httpcall.Trust{Name: a.TLS.String(), Load: a.TLS.Source()}
	}
	if r := a.Retry.Adaptive; r != nil {
		api.Retry.Adaptive = &schedule.Adaptive{Floor: r.Floor, Recover: r.Recover}
	}
	if q := a.Inquiry; q != nil {
		api.Inquiry = &httpcall.Inquiry{Method: q.Method, Path: q.Path, Rate: q.Rate, After: max(q.After, a.Timeout), Auto: q.Auto, Tries: q.Tries}
		api.Inquiry.Answers = answers(q.Answers)
	}
	if o := a.Operation; o != nil {
		api.Operation = &httpcall.Operation{
			Accepted: o.Accepted, Path: o.Poll.Path, Hosts: o.Poll.Hosts, Every: o.Poll.Every, Rate: o.Poll.Rate, For: o.Poll.For,
			Answers: answers(o.Answers), Result: o.Result, HoldSlot: o.HoldSlot,
		}
		if o.Cancel != nil {
			api.Operation.Cancel = &httpcall.Cancellation{Method: o.Cancel.Method, Path: o.Cancel.Path}
		}
	}
	if a.Reuse != nil {
		api.Reuse = reuseRule(a, api.Target())
	}
	if p := a.Pack; p != nil {
		api.Pack = &httpcall.Pack{
			Jobs: p.Jobs, Bytes: p.Bytes, Wait: p.Wait, Request: httpcall.Form(p.Request), Answers: httpcall.Form(p.Answers), Match: p.Match, Status: p.Status,
		}
	}
	if a.Idempotency != nil {
		api.Idempotency = &httpcall.Idempotency{Header: a.Idempotency.Header, Quoted: a.Idempotency.Quoted, For: a.Idempotency.For}
	}
	return api
}

// answers returns the meanings of an api's answers to inquiries and polls, in the form that the dispatcher uses.
func answers(configured []config.InquiryAnswer) (all httpcall.Answers) {
	for _, a := range configured {
		all = append(all, httpcall.InquiryAnswer{Status: a.Status, JSON: a.JSON, Values: a.Values, Means: httpcall.Finding(a.Means)})
	}
	return all
}

// reuseRule returns the rule by which an answer of an api is given to later jobs. target identifies the address that is
// called.
func reuseRule(a *config.API, target string) *reuse.Rule {
	r := a.Reuse
	for _, h := range a.Headers {
		target += "\n" + h.Name + ": " + h.Value.String() // references and not secrets, because secrets may change
	}
	if target += "\n" + a.TLS.String(); a.Operation != nil {
		target += "\n" + a.Operation.Result
	}
	return &reuse.Rule{
		For: r.For, Path: r.Compares(config.ReusePath), Body: r.Compares(config.ReuseBody), Headers: a.ComparedHeaders(),
		AcrossKeys: r.AcrossKeys, TenantUntil: a.Rules.TenantUntil, Bytes: r.Bytes, Target: target,
	}
}

// credentials returns the names of the headers that carry a secret.
func credentials(headers []config.Header) (names []string) {
	for _, h := range headers {
		if h.Value.HasReference() {
			names = append(names, h.Name)
		}
	}
	return names
}

// secrets returns the present values of the references in headers.
func secrets(headers []config.Header) (values []string) {
	for _, h := range headers {
		values = append(values, h.Value.Secrets()...)
	}
	return values
}

func resolve(headers []config.Header) ([]ingest.HeaderField, error) {
	fields := make([]ingest.HeaderField, len(headers))
	for i, h := range headers {
		value, err := h.Value.Resolve()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		fields[i] = ingest.HeaderField{Name: h.Name, Value: value}
	}
	return fields, nil
}

// largestCapacity returns the largest capacity of any key. It is the limit of the queue's streams.
func largestCapacity(r bucket.Rules) int64 {
	most := r.Key.Capacity
	for _, o := range r.Overrides {
		if o.Capacity != nil {
			most = max(most, *o.Capacity)
		}
	}
	return most
}

// RedriveTerms returns a function that looks up the terms of an api for a redrive, by the configuration current.
func RedriveTerms(current *config.Config) func(api string) (deadletter.Terms, bool) {
	return func(name string) (deadletter.Terms, bool) {
		api, ok := current.API(name)
		if !ok {
			return deadletter.Terms{}, false
		}
		of := DispatchAPI(api, current)
		return deadletter.Terms{
			Rules: api.Rules, MaxBody: api.MaxBody, Price: int64(api.Price), Idempotent: api.Idempotency != nil,
			Keyed: of.KeyIdentity(), KnowsKeys: of.KnowsKeys(), Key: ingestRule(api, current).Key,
			Dedupe: current.Dedupe + ledger.ServerSkew,
		}, true
	}
}
