package weirtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// mostOutstanding is how many unfinished jobs the producers keep. It exceeds the number of running calls, so that jobs
// always wait for the limit.
const mostOutstanding = 150

// Produce runs what while producers submit jobs, each for a key of its own. It then waits until no job waits.
func (l Tokens) Produce(r *KillRig, producers int, what func(ctx context.Context)) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 10*time.Minute) // each wait has its own timeout
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	var submitted atomic.Int64
	for p := range producers {
		all.Go(func() {
			for n := p; publishing.Err() == nil; n += producers {
				for submitted.Load()-r.API.Totals().Ended >= mostOutstanding {
					if !stream.Sleep(publishing, 10*time.Millisecond) {
						return
					}
				}
				submitted.Add(1)
				r.PublishMsg(ctx, l.Job(n, producers))
			}
		})
	}
	what(ctx)
	stop()
	await.Return(r.T, "the producers' last receipts", all.Wait)
	r.AwaitEmpty()
	if n := submitted.Load(); n != int64(len(r.Acks)) {
		r.T.Errorf("%s: %d of %d jobs have receipts", l.What, len(r.Acks), n)
	}
}

// CheckSpent compares the sums of `weir spend` with the vendor's bill for jobs that are done, to a millionth. The bill
// may include jobs whose outcome is unknown; weir must show their price as in doubt.
func (r *KillRig) CheckSpent(l Tokens) {
	r.T.Helper()
	account := SpendOf(r.T, r.NC.ConnectedUrl())
	ended, arrivals := r.Outcomes(), r.API.All()
	var done, doubtful int64
	of := fakeapi.ByField("n")
	for i := range arrivals {
		job := "job-" + of(&arrivals[i])
		if out := ended[job]; len(out) == 1 && out[0] == "done" {
			done += arrivals[i].Charge
		} else {
			doubtful += arrivals[i].Charge
		}
	}
	unknown := 0
	for id := range r.Acks {
		switch out := ended[id]; {
		case len(out) != 1:
			r.T.Errorf("%s: job %s ended as %v", l.What, id, out)
		case out[0] == "unknown":
			unknown++
		case out[0] != "done":
			r.T.Errorf("%s: job %s ended as %s", l.What, id, out[0])
		}
	}
	r.T.Logf("%s: %d jobs, %d of them unknown; the bill is %d for those that are done and %d for others; "+
		"weir says %s, and %s in doubt", l.What, len(r.Acks), unknown, done, doubtful, account.Spent, account.InDoubt)
	if spent := Millionths(r.T, account.Spent); spent != done {
		r.T.Errorf("%s: weir spend says %d, the vendor's bill for jobs that are done is %d", l.What, spent, done)
	}
	if doubt := Millionths(r.T, account.InDoubt); unknown == 0 && doubtful > 0 || doubt < 0 {
		r.T.Errorf("%s: the vendor bills %d for jobs that weir does not know, and no job is unknown", l.What, doubtful)
	}
}

// TokenAPI returns the options of a fake language model whose calls take about a tenth of a second. The model bills a
// repeated idempotency key once.
func TokenAPI() fakeapi.Options {
	return fakeapi.Options{
		Vendor: fakeapi.OpenAI, Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 256,
		Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatAwaited},
		Latency: fakeapi.Latency{
			Shape: fakeapi.Uniform, Min: 50 * time.Millisecond, Mean: 100 * time.Millisecond, Seed: 1,
		},
	}
}

// TokenCases returns loads with estimates five times too high, right, and five times too low, for each value of Learn.
// Least is low enough for a machine with much other work. On two cores with a load of ten, loads of 12 s used 36 % of
// the limit with estimates that are too high, 84 % of it if weir learned from the answers, and at least 90 % with other
// estimates.
func TokenCases(learns ...string) (all []Tokens) {
	for _, learn := range learns {
		for _, e := range []struct {
			what   string
			of, in int64
			least  float64
		}{{"five times too high", 5, 1, 0.15}, {"right", 1, 1, 0.4}, {"five times too low", 1, 5, 0.4}} {
			l := Tokens{What: e.what, Of: e.of, In: e.in, Learn: learn, Limit: TokenRate, Calls: CallRate, Least: e.least}
			if learn != "" {
				l.Least = 0.4
				l.What = fmt.Sprintf("%s, learned %s", e.what, strconv.Quote(learn))
			}
			all = append(all, l)
		}
	}
	return all
}
