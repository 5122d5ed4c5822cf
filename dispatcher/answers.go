package dispatcher

import (
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
)

// answers reads the results whose answers may be given again to equal jobs. It does so at the start, when a rule of
// reuse begins to apply, and after partitions were taken over from other replicas. Until a reading is complete, a job
// may be called although an equal job was answered before.
type answers struct {
	*lane.Lane
	wanted chan struct{} // tells keep to read
	of     *lane.Equals  // the answers found by the last reading; only keep uses of, rule and read
	rule   *reuse.Rule   // the rule of the last reading
	read   uint64        // sequence of the last result that was read
}

func newAnswers(l *lane.Lane) *answers { return &answers{Lane: l, wanted: make(chan struct{}, 1)} }

// recall tells keep to read the answers that are not known yet. It does not block.
func (a *answers) recall() {
	select {
	case a.wanted <- struct{}{}:
	default:
	}
}

// Bounds of one reading of answers.
const (
	mostRecalled  = 200_000 // results
	recallWithin  = 30 * time.Second
	recallRetries = 3
)

// keep reads the answers after each recall, until ctx ends. If a reading fails, it tries recallRetries times in all.
func (a *answers) keep(ctx context.Context) {
	for {
		select {
		case <-a.wanted:
		case <-ctx.Done():
			return
		}
		for try := range recallRetries {
			err := a.readOnce(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			a.Log.Warn("cannot read which answers may be given again; their jobs are called", "err", err, "try", try+1, "of", recallRetries)
			stream.Sleep(ctx, lane.LoadRetry)
		}
	}
}

func (a *answers) readOnce(ctx context.Context) error {
	a.Mu.Lock()
	of := a.Equals
	var rule *reuse.Rule
	if of != nil {
		rule = of.Rule
	}
	a.Mu.Unlock()
	if of == nil {
		return nil
	}
	// A new or wider rule may allow answers that were already forgotten.
	if of != a.of || rule.For > a.rule.For || rule.Bytes > a.rule.Bytes {
		a.read = 0
	}
	a.of, a.rule = of, rule
	ctx, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	o := ledger.Requests{API: a.Name, Since: time.Now().Add(-rule.For), After: a.read, Most: mostRecalled}
	last, err := ledger.ReadRequests(ctx, a.Env.JS, o, func(request string, seq uint64, stored time.Time) {
		sum, ok := reuse.ParseSum(request)
		if !ok {
			return
		}
		a.Update(func(s *schedule.Schedule) {
			a.LearnLocked(sum, seq, min(s.Queues.Own(bucket.MicrosOf(stored)), a.Now()))
		})
	})
	if err == nil {
		a.read = max(a.read, last)
	}
	return err
}
