package outlook

import (
	"hash/maphash"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// Past is what the ledger and the letters say about the jobs of one api since a time.
type Past struct {
	API *config.API
	Seen

	trace  *whatif.Trace
	since  bucket.Micros
	dedupe time.Duration
	left   *int // how many more keys fit, over all apis that are planned together
	limits []*bucket.Limit
	seed   maphash.Seed
	open   map[uint64]life // by key and id: jobs of which more records may come
}

// Seen counts what was found about an api's jobs.
type Seen struct {
	Calls      int `json:"calls"`      // recorded
	Overflowed int `json:"overflowed"` // jobs with a letter overflow
	// Refusals counts further refusals of these jobs, because their producers tried again.
	Refusals int `json:"refused_again,omitempty"`
	// LeftOut counts jobs of keys beyond the bound. The plan has none of them.
	LeftOut int `json:"left_out,omitempty"`
	// Redriven counts jobs that were redriven. They count when they were redriven, not when they first came.
	Redriven int `json:"redriven,omitempty"`
	// Reused counts jobs that got the answers of equal jobs. The plan has none of them.
	Reused int `json:"reused,omitempty"`
	// Packed counts jobs whose call was also for others. The plan calls each alone.
	Packed int `json:"packed,omitempty"`
	// Imported counts letters that were moved here from another server. The plan has none of their jobs.
	Imported int `json:"imported,omitempty"`
}

// life is a job of the trace from one acceptance on.
type life struct {
	job     int
	from    bucket.Micros
	refused bool // no queue has taken it
}

// newPast returns an empty past of an api. dedupe is how long a job's id means the same job. It takes its keys from
// left, which is how many more fit.
func newPast(api *config.API, since time.Time, dedupe time.Duration, left *int) *Past {
	p := &Past{API: api, since: bucket.MicrosOf(since), dedupe: dedupe, left: left, seed: maphash.MakeSeed(), open: map[uint64]life{}}
	var names []string
	rules := api.CallRules()
	for i := range rules.Shared {
		if l := &rules.Shared[i]; l.Budget != nil || l.Kind() != bucket.KindInFlight && !l.Cost.Fixed() {
			p.limits, names = append(p.limits, l), append(names, l.Name)
		}
	}
	p.trace = whatif.NewTrace(names)
	return p
}

// letter adds a letter. Letters must be added before records: a record of the same job then belongs to the letter's
// job. A job that was refused and submitted again within dedupe is one job, which came when it was refused first.
func (p *Past) letter(k *deadletter.Kept) {
	at := k.Accepted
	if at.IsZero() {
		at = k.At
	}
	from := bucket.MicrosOf(at)
	switch {
	case !k.Imported.IsZero():
		p.Imported++
		return
	case k.Reason == deadletter.Invalid, from < p.since:
		return // no limits make it a call, or it belongs to an earlier time
	case !p.takes(k.Key):
		return
	}
	if k.Reason == deadletter.Overflow {
		p.Overflowed++
		p.Refusals += max(0, k.Refusals-1)
	}
	job := p.trace.Add(k.Key, from)
	if k.JobID != "" {
		p.open[p.nameOf(k.Key, k.JobID)] = life{job, from, k.Origin == ""}
	}
}

// record adds a record of the ledger. Records must be added in the order in which they were stored.
func (p *Past) record(c *ledger.Record) {
	switch {
	case c.Inquiry != "":
		return
	case c.Outcome == ledger.Reused:
		p.Reused++
		return
	}
	name, from := p.nameOf(c.Key, c.Job), bucket.MicrosOf(c.Accepted)
	of, known := p.open[name]
	known = known && (of.from == from || of.refused && of.from <= from && of.from.Until(from) <= p.dedupe)
	switch {
	case known:
	case c.Polled, from < p.since:
		return
	case !p.takes(c.Key):
		if c.Call > 1 {
			p.LeftOut-- // its first call was counted
		}
		return
	default:
		of = life{job: p.trace.Add(c.Key, from)}
		if c.Redrives > 0 {
			p.Redriven++
		}
	}
	if p.add(of.job, c); c.Final {
		delete(p.open, name)
		return
	}
	p.open[name] = life{job: of.job, from: from}
}

// add adds what a record says to a job of the trace.
func (p *Past) add(job int, c *ledger.Record) {
	took := make([]int64, len(p.limits))
	for i, l := range p.limits {
		took[i] = c.Units(l)
	}
	if c.Polled { // the end of an operation is no call
		p.trace.Took(job, took)
		return
	}
	p.Calls++
	if c.Pack != nil {
		p.Packed++
	}
	p.trace.Called(job, c.Ended.Sub(c.Started), took)
}

// takes reports whether jobs of a key still fit. It counts the job if not.
func (p *Past) takes(key string) bool {
	switch {
	case p.trace.Knows(key):
	case *p.left > 0:
		*p.left--
	default:
		p.LeftOut++
		return false
	}
	return true
}

func (p *Past) nameOf(key, job string) uint64 {
	return maphash.String(p.seed, key+"\x00"+job)
}

// finish must be called after the last record. It leaves out jobs that came after a time.
func (p *Past) finish(until time.Time) {
	p.open = nil
	p.trace.Finish(bucket.MicrosOf(until))
}

// Trace returns the jobs.
func (p *Past) Trace() *whatif.Trace { return p.trace }
