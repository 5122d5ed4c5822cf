package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/internal/ops/whatif"
)

// Bounds of computations in the process that also makes calls. One plan, one outlook and one verification run at a time.
// A verification takes at most 150 MB, a plan 100 MB, and an outlook 120 MB, for an api or for all of an account. For
// larger ones use the commands, which run in their own process.
const (
	mostVerifiedCalls = 1_000_000
	mostVerifiedKeys  = 100_000
	mostVerifiedJobs  = 200_000
	verifyTime        = 2 * longRead
	mostTrace         = 64 << 20 // bytes
	mostArrivals      = 1_000_000
	planTime          = longRead
	mostPlannedCalls  = 100_000
	mostPlannedKeys   = 20_000
	mostPlannedDead   = 50_000
)

// Parameters of a plan. An absent one has the value of the api's limits, or the default of a configuration.
var (
	planCapacity = parameter{name: "capacity", summary: "unfinished jobs that a key may have", kind: number, most: 10_000_000}
	planBurst    = parameter{name: "burst", summary: "calls that may leave together after idling", kind: number, most: 1_000_000}
	planInFlight = parameter{name: "in_flight", summary: "calls of one key running at once", kind: number, most: 1_000_000}
)

// whatIf computes what limits would have done, and checks past calls against the limits in force.
type whatIf struct{ *Options }

func (w *whatIf) verify(ctx context.Context, r *request) (any, error) {
	if name := r.word("api"); name != "" {
		if _, err := w.named(name); err != nil {
			return nil, err
		}
	}
	found, err := verify.Find(ctx, w.Connection, verify.Options{
		API: r.word("api"), Since: r.time("since"), Talk: io.Discard,
		Most: verify.Bounds{Calls: mostVerifiedCalls, Keys: mostVerifiedKeys, Jobs: mostVerifiedJobs},
	})
	if errors.Is(err, verify.ErrTooMuch) {
		return nil, cli.Refused(fmt.Errorf("%w: ask for one api or a later since, or use weir verify, which has memory of its own", err))
	}
	return found, err
}

func (w *whatIf) outlook(ctx context.Context, r *request) (any, error) {
	since := r.time("since")
	if since.IsZero() || !since.Before(r.asked) {
		return nil, badRequest("since is missing, or not in the past: say from when on, as in 7d")
	}
	recorded, err := outlook.Read(ctx, w.Connection, outlook.Question{
		API: r.word("api"), Account: r.word("account"), Since: since, Now: r.asked,
		Most: outlook.Bounds{Records: mostPlannedCalls, Letters: mostPlannedDead, Keys: mostPlannedKeys},
	})
	var o *outlook.Outlook
	if err == nil {
		o, err = outlook.Of(ctx, recorded, func(int) {})
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, console.NewProblem(http.StatusConflict, "the plan takes longer than %s: say a later since, or use weir plan --since", planTime)
	}
	return o, err
}

func (w *whatIf) rehearse(ctx context.Context, r *request) (any, error) {
	bound, err := r.duration("longest_wait")
	if err != nil {
		return nil, err
	}
	c, err := w.candidate(r, bound > 0)
	if err != nil {
		return nil, err
	}
	trace, err := whatif.ReadTrace(r.Body, "trace", mostArrivals)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, console.NewProblem(http.StatusRequestEntityTooLarge, "the trace is larger than %d bytes: send a part of it, or use weir plan", large.Limit)
	case err != nil:
		return nil, badRequest("%v", err)
	}
	silent := func(int) {}
	var o *whatif.Outcome
	if r.word("suggest") == "true" {
		o, err = whatif.Suggest(ctx, trace, *c, bound, silent)
	} else {
		o, err = whatif.Run(ctx, trace, c, silent)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, console.NewProblem(http.StatusConflict, "the plan takes longer than %s: send a part of the trace, or use weir plan", planTime)
	case err != nil && ctx.Err() == nil:
		return nil, badRequest("%v", err)
	}
	return o, err
}

// candidate returns the limits that a request wants to try. If sought is set, the rate may be missing.
func (w *whatIf) candidate(r *request, sought bool) (*whatif.Candidate, error) {
	c := &whatif.Candidate{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Burst: 1}, InFlight: 4}, Jitter: config.DefaultJitter}}
	if name := r.word("api"); name != "" {
		api, err := w.named(name)
		if err != nil {
			return nil, err
		}
		*c = whatif.CandidateOf(api)
	}
	var err error
	if c.CallTime, err = r.duration("call_time"); err != nil {
		return nil, err
	}
	key := &c.Rules.Key
	if text := r.word("rate"); text != "" {
		rate, err := grammar.ParseRate(text)
		if err != nil {
			return nil, badRequest("rate: %v", err)
		}
		key.Rate.Count, key.Rate.Per = rate.Count, rate.Per
	}
	for _, p := range []struct {
		of   parameter
		into *int64
	}{{planCapacity, &key.Capacity}, {planBurst, &key.Rate.Burst}, {planInFlight, &key.InFlight}} {
		if n := r.number(p.of); n > 0 {
			*p.into = int64(n)
		}
	}
	if text := r.word("counts"); text != "" {
		key.Rate.Counts = bucket.Counting(text)
	}
	return c, checkCandidate(c, r.word("suggest") == "true", sought)
}

func checkCandidate(c *whatif.Candidate, suggest, sought bool) error {
	key := &c.Rules.Key
	if key.Rate.Count == 0 && suggest && sought {
		key.Rate.Count, key.Rate.Per = 1, time.Second
	}
	switch {
	case sought && !suggest:
		return badRequest("longest_wait is what suggest seeks a rate for: say suggest=true too")
	case key.Rate.Count == 0:
		return badRequest("rate is missing, as in 10/s; or name an api")
	case key.Rate.Burst > key.Rate.Count && key.Rate.Counts != bucket.ByTokens:
		return badRequest("burst %d is more than %s may see in any period: say counts=token_bucket, or a smaller burst", key.Rate.Burst, grammar.FormatRate(key.Rate))
	case key.Capacity < 1 && !suggest:
		return badRequest("capacity is missing, a whole number from 1; or name an api")
	case key.Capacity < 1:
		key.Capacity = 1 // any value will do, because the plan seeks it
	}
	if err := c.Rules.Validate(); err != nil {
		return badRequest("%v", err)
	}
	return nil
}
