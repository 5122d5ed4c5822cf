package whatif

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
)

// Outcome is what a candidate would have done to a trace.
type Outcome struct {
	Rate       string          `json:"rate"`
	Burst      int64           `json:"burst"`
	Counts     bucket.Counting `json:"counts"`
	Capacity   int64           `json:"capacity"`
	Suggested  bool            `json:"suggested,omitempty"`
	Keys       int             `json:"keys"`
	Jobs       int             `json:"jobs"`
	Accepted   int             `json:"accepted"`
	Overflowed int             `json:"overflowed"`            // the bucket was full, or max_wait too short
	Refused    int             `json:"refused,omitempty"`     // their cost can never pass a limit
	OverBudget int             `json:"over_budget,omitempty"` // taken, and then a letter
	Called     int             `json:"called"`
	Wait       Waits           `json:"wait_ms"` // of those called, from arrival to call
	Deepest    Deepest         `json:"deepest"`

	keys []OfKey // in the order of the trace's keys
}

// OfKey is what a candidate would have done to the jobs of one key.
type OfKey struct {
	Key        string `json:"key"`
	Jobs       int    `json:"jobs"`
	Overflowed int    `json:"overflowed"`
	Deepest    int    `json:"deepest"` // the most jobs that its bucket held
}

// Overflowing returns the keys whose jobs would have overflowed, those with most such jobs first.
func (o *Outcome) Overflowing() []OfKey {
	over := slices.DeleteFunc(slices.Clone(o.keys), func(k OfKey) bool { return k.Overflowed == 0 })
	slices.SortStableFunc(over, func(a, b OfKey) int {
		return cmp.Or(cmp.Compare(b.Overflowed, a.Overflowed), strings.Compare(a.Key, b.Key))
	})
	return over
}

// Of returns what the candidate would have done to the jobs of a key.
func (o *Outcome) Of(key string) OfKey {
	if i := slices.IndexFunc(o.keys, func(k OfKey) bool { return k.Key == key }); i >= 0 {
		return o.keys[i]
	}
	return OfKey{Key: key}
}

// Waits are quantiles of waits, in milliseconds: at least so large a part waited no longer.
type Waits struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Deepest is the bucket that held most jobs, and their number.
type Deepest struct {
	Key   string `json:"key"`
	Depth int    `json:"depth"`
}

// tally counts the outcomes during a run.
type tally struct {
	jobs, accepted, overflowed, refused, overBudget int

	waits   []bucket.Micros
	deepest int
	of      uint32 // the key whose bucket was that deep
	keys    []OfKey
}

// take counts an accepted job. depth is the number of jobs of its key, including this job.
func (t *tally) take(key uint32, depth int) {
	if t.accepted++; depth > t.deepest {
		t.deepest, t.of = depth, key
	}
	k := &t.keys[key]
	k.Deepest = max(k.Deepest, depth)
}

func (t *tally) overflow(key uint32) {
	t.overflowed++
	t.keys[key].Overflowed++
}

func (t *tally) call(wait time.Duration) {
	t.waits = append(t.waits, bucket.Micros(wait/time.Microsecond))
}

func (t *tally) outcome(trace *Trace, c *Candidate) *Outcome {
	slices.Sort(t.waits)
	key := &c.Rules.Key
	o := &Outcome{
		Rate: grammar.FormatRate(key.Rate), Burst: key.Rate.Burst, Counts: key.Rate.Counted(), Capacity: key.Capacity, Keys: trace.Keys(),
		Jobs: t.jobs, Accepted: t.accepted, Overflowed: t.overflowed, Refused: t.refused, OverBudget: t.overBudget, Called: len(t.waits),
		Wait: Waits{P50: t.quantile(50), P95: t.quantile(95), P99: t.quantile(99), Max: t.quantile(100)},
		keys: t.keys,
	}
	if t.deepest > 0 {
		o.Deepest = Deepest{trace.keys[t.of], t.deepest}
	}
	return o
}

// quantile returns the wait in milliseconds that percent of the calls did not exceed. It returns 0 if there were no
// calls.
func (t *tally) quantile(percent int) float64 {
	if len(t.waits) == 0 {
		return 0
	}
	rank := (len(t.waits)*percent + 99) / 100
	return float64(t.waits[max(1, rank)-1]) / 1000
}
