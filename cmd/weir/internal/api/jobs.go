package api

import (
	"context"
	"errors"
	"fmt"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/spend"
	"weir/cmd/weir/internal/timeline"
	"weir/dispatcher/ledger"
)

// resultList answers GET /results.
type resultList struct {
	Results []timeline.KeptResult `json:"results"`
	// Next is the before of the next page; absent on the last.
	Next uint64 `json:"next,omitempty"`
}

// mostScanned is how many messages of each stream are looked through for an id.
const mostScanned = 200_000

var (
	listLimit = parameter{name: "limit", summary: "how many to list", kind: number, most: 1000, usual: 100}
	ofAPI     = parameter{name: "api", summary: "only of this api", kind: text}
	ofKey     = parameter{name: "key", summary: "only of this key; needs api", kind: text}
	since     = parameter{name: "since", summary: "only from this RFC 3339 time on, or from this long ago, as in 2h or 1d", kind: instant}
	before    = parameter{name: "before", summary: "next of the page before: only what was stored before this message", kind: text}
	groupBy   = parameter{name: "by", summary: "what it is added up by", kind: text, words: []string{"api", "key", "tenant", "day"}}
)

func jobRoutes() []route {
	return []route{
		{
			method: "GET", path: "/jobs/{id}", name: "findJob", role: console.Viewer, answer: &timeline.Timeline{}, atOnce: readsAtOnce, time: longRead,
			summary: "Where a job is or what became of it: its timeline (weir job). With api and key only theirs is read, which takes no time",
			query:   []parameter{ofAPI, ofKey}, serve: (*API).findJob,
		},
		{
			method: "GET", path: "/results", name: "listResults", role: console.Viewer, answer: resultList{}, atOnce: readsAtOnce,
			summary: "Results, the newest first, without their bodies (weir results ls)",
			query:   []parameter{ofAPI, ofKey, since, before, listLimit}, serve: (*API).listResults,
		},
		{
			method: "GET", path: "/results/{api}/{id}", name: "getResult", role: console.Viewer, answer: timeline.KeptResult{}, atOnce: readsAtOnce, time: longRead,
			summary: "A job's result (weir results get). Its body is told to operators only", query: []parameter{{name: "key", summary: "the job's key: then only its results are read", kind: text}},
			serve: (*API).getResult,
		},
		{
			method: "GET", path: "/spend", name: "getSpend", role: console.Viewer, answer: &spend.Account{}, atOnce: 2, time: longRead,
			summary: "What was spent, by the ledger, and how the budgets stand (weir spend): today, and by day in the last 31 days",
			query:   []parameter{groupBy, ofAPI, since, listLimit}, serve: (*API).getSpend,
		},
	}
}

// keyOf refuses a key without an api.
func (a *API) keyOf(r *request) (api, key string, err error) {
	api, key = r.word("api"), r.word("key")
	if key != "" && api == "" {
		return "", "", badRequest("key needs api: keys belong to apis")
	}
	return api, key, nil
}

func (a *API) findJob(ctx context.Context, r *request) (any, error) {
	api, key, err := a.keyOf(r)
	if err != nil {
		return nil, err
	}
	o := timeline.Options{Job: r.PathValue("id"), API: api, Key: key, Scan: mostScanned, APIs: []string{api}}
	if api == "" {
		o.APIs = configured(a.Config())
	}
	t, err := timeline.Find(ctx, a.Connection, o)
	if err == nil && len(t.Jobs) == 0 {
		return nil, cli.NotFound(fmt.Errorf("nobody knows a job %s, as far back as was looked", cli.Visible(o.Job)))
	}
	return t, err
}

func (a *API) listResults(ctx context.Context, r *request) (any, error) {
	f := ledger.ResultFilter{Since: r.time("since")}
	var err error
	if f.API, f.Key, err = a.keyOf(r); err != nil {
		return nil, err
	}
	if f.Before, err = r.seq("before"); err != nil {
		return nil, err
	}
	list, limit := resultList{Results: []timeline.KeptResult{}}, r.number(listLimit)
	_, err = ledger.NewestResults(ctx, a.Connection.JetStream, f, 0, func(k ledger.Result) error {
		if len(list.Results) == limit {
			list.Next = list.Results[limit-1].Seq
			return stream.ErrEnough
		}
		list.Results = append(list.Results, timeline.ResultOf(&k))
		return nil
	})
	if errors.Is(err, ledger.ErrNoResults) {
		return list, nil
	}
	return list, a.Connection.Explain(err)
}

func (a *API) getResult(ctx context.Context, r *request) (any, error) {
	f := ledger.ResultFilter{API: r.PathValue("api"), Key: r.word("key"), Job: r.PathValue("id")}
	found, err := timeline.FindResult(ctx, a.Connection, f, mostScanned)
	if err != nil {
		return nil, err
	}
	told := timeline.ResultOf(found)
	if r.who.Role != console.Operator {
		told.Body = timeline.Body{}
	}
	return told, nil
}

func (a *API) getSpend(ctx context.Context, r *request) (any, error) {
	by, now := spend.By(r.word("by")), r.asked
	if by == "" {
		by = spend.ByAPI
	}
	api := r.word("api")
	if api != "" {
		if _, err := a.named(api); err != nil {
			return nil, err
		}
	}
	from := r.time("since")
	if from.IsZero() {
		from = spend.UsualSince(by, now)
	}
	account, err := spend.Of(ctx, a.Connection, spend.Options{By: by, API: api, Since: from, Now: now, Config: a.Config()})
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		return nil, cli.NotFound(err)
	case err != nil:
		return nil, a.Connection.Explain(err)
	}
	if len(account.Budgets) > 0 {
		if s, err := a.statusNow(ctx); err == nil { // else the ledger tells what it can
			for _, api := range s.APIs {
				account.Heard(api.API, api.Limits)
			}
		}
	}
	account.Groups = account.Groups[:min(len(account.Groups), r.number(listLimit))]
	return account, nil
}
