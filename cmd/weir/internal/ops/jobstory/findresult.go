package jobstory

import (
	"context"
	"errors"
	"fmt"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/ledger"
)

// FindResult returns the newest result of the job that a filter names, with its body. It searches at most the scan
// newest results that the filter selects; 0 means all. It fails if there is no result, or if the id has results under
// several keys. Its errors have exit codes.
func FindResult(ctx context.Context, c *connect.Connection, filter ledger.ResultFilter, scan int) (*ledger.Result, error) {
	if r, err := newestResult(ctx, c, filter); err != nil {
		return nil, err
	} else if r != nil {
		return wholeResult(ctx, c, r.Seq)
	}
	var found []ledger.Result
	reach, err := ledger.NewestResults(ctx, c.JetStream, filter, scan, func(r ledger.Result) error {
		for i := range found {
			if found[i].API == r.API && found[i].Key == r.Key {
				return nil // of the same job, before it was redriven
			}
		}
		if found = append(found, r); filter.Key != "" {
			return stream.ErrEnough
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, ExplainResults(c, err)
	case len(found) == 0 && !reach.All:
		return nil, cli.NotFound(fmt.Errorf("job %s has none of the newest %s, which reach back to %s: --scan 0 looks further", cli.Visible(filter.Job),
			cli.Count(reach.Read, "result"), cli.ClockTime(reach.From)))
	case len(found) == 0:
		return nil, cli.NotFound(fmt.Errorf("no result of job %s is kept: `weir job` says what became of it", cli.Visible(filter.Job)))
	case len(found) > 1:
		return nil, cli.Refused(fmt.Errorf("%d jobs of this id have results: name one by --api and --key (%s/%s, %s/%s)", len(found),
			found[0].API, cli.Visible(found[0].Key), found[1].API, cli.Visible(found[1].Key)))
	}
	return wholeResult(ctx, c, found[0].Seq)
}

// wholeResult returns the result at a sequence, with its body.
func wholeResult(ctx context.Context, c *connect.Connection, seq uint64) (*ledger.Result, error) {
	r, err := ledger.ResultAt(ctx, c.JetStream, seq)
	if err != nil {
		return nil, c.Explain(err)
	} else if r == nil {
		return nil, cli.NotFound(errors.New("the result was just deleted: it was too old, or its stream is full"))
	}
	return r, nil
}

// newestResult returns the newest result of the only job that a filter names, without its body. It uses the index of
// ended jobs, and returns nil if the index cannot tell.
func newestResult(ctx context.Context, c *connect.Connection, filter ledger.ResultFilter) (*ledger.Result, error) {
	s := &search{Options: Options{Job: filter.Job, API: filter.API, Key: filter.Key}, c: c, t: &Timeline{}}
	if !filter.Since.IsZero() || filter.Before != 0 || !s.indexed(ctx) {
		return nil, nil //nolint:nilnil // it is to be searched for
	}
	if err := s.tracedCalls(ctx); err != nil {
		return nil, c.Explain(err)
	}
	var found *ledger.Result
	for _, j := range s.t.Jobs {
		switch {
		case j.result == nil:
		case found != nil:
			return nil, nil //nolint:nilnil // the search names them both
		default:
			found = j.result
		}
	}
	return found, nil
}

// ExplainResults adds the exit code to an error that occurred while reading results.
func ExplainResults(c *connect.Connection, err error) error {
	if errors.Is(err, ledger.ErrNoResults) {
		return cli.NotFound(err)
	}
	return c.Explain(err)
}
