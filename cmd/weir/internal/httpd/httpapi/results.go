package httpapi

import (
	"context"
	"errors"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// resultList answers GET /results.
type resultList struct {
	Results []jobstory.KeptResult `json:"results"`
	// Next is the before of the next page; absent on the last.
	Next uint64 `json:"next,omitempty"`
}

// results answers with stored results.
type results struct{ *Options }

func (s *results) list(ctx context.Context, r *request) (any, error) {
	f := ledger.ResultFilter{Since: r.time("since")}
	var err error
	if f.API, f.Key, err = r.keyOf(); err != nil {
		return nil, err
	}
	if f.Before, err = r.seq("before"); err != nil {
		return nil, err
	}
	list, limit := resultList{Results: []jobstory.KeptResult{}}, r.number(listLimit)
	_, err = ledger.NewestResults(ctx, s.Connection.JetStream, f, 0, func(k ledger.Result) error {
		if len(list.Results) == limit {
			list.Next = list.Results[limit-1].Seq
			return stream.ErrEnough
		}
		list.Results = append(list.Results, jobstory.ResultOf(&k))
		return nil
	})
	if errors.Is(err, ledger.ErrNoResults) {
		return list, nil
	}
	return list, s.Connection.Explain(err)
}

func (s *results) show(ctx context.Context, r *request) (any, error) {
	f := ledger.ResultFilter{API: r.PathValue("api"), Key: r.word("key")}
	if err := ingest.CheckAPI(f.API); err != nil {
		return nil, badRequest("api: %v", err)
	}
	var err error
	if f.Job, err = r.job(); err != nil {
		return nil, err
	}
	found, err := jobstory.FindResult(ctx, s.Connection, f, jobstory.UsualScan)
	if err != nil {
		return nil, err
	}
	told := jobstory.ResultOf(found)
	if r.who.Role != console.Operator {
		told.Body = jobstory.Body{}
	}
	return told, nil
}
