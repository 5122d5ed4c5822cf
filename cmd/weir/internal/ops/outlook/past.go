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
	open   map[uint64]life // jobs of which more records may come; by nameOf, or by refusedAs if no queue took the job
}

// Seen counts what was found about an api's jobs.
type Seen struct {
	Calls      int `json:"calls"`      // recorded
	Overflowed int `json:"overflowed"` // jobs with a letter overflow
	// Refusals counts further refusals of these jobs, because their producers tried again.
	Refusals int `json:"refused_again,omitempty"`
	// LeftOut counts jobs of keys beyond the bound. The plan has none of them.
	LeftOut int `json:"left_out,omitempty"`
	// Redriven counts jobs that were redriven. They count when they were redriven, and also when they first came
	// if they were called then.
	Redriven int `json:"redriven,omitempty"`
	// Reused counts jobs that got the answers of equal jobs. The plan has none of them.
	Reused int `json:"reused,omitempty"`
	// Packed counts jobs whose call was also for others. The plan calls each alone.
	Packed int `json:"packed,omitempty"`
	// Imported counts letters that were moved here from another server. The plan has none of their jobs.
	Imported int `json:"imported,omitempty"`
}

// life is a job of the trace since one of its acceptances or refusals.
type life struct {
	job  int // noJob: it was left out, and counted
	from bucket.Micros
}

const noJob = -1

// newPast returns the past of an api, still without jobs. dedupe is how long an id means the same job. left is how many
// more keys fit; the past lowers it for each key that it adds.
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

// letter adds a letter. All letters must be added before the records, so that records of the same job are added to the
// letter's job. A job that was refused and submitted again within dedupe is one job, which came at its first refusal.
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
		return // no limits would let it be called, or it came before the time to plan from
	}
	job := p.job(k.Key, from)
	if k.Reason == deadletter.Overflow && job != noJob {
		p.Overflowed++
		p.Refusals += max(0, k.Refusals-1)
	}
	switch {
	case k.JobID == "":
	case k.Origin == "":
		p.open[p.refusedAs(k.Key, k.JobID)] = life{job, from}
	default:
		p.open[p.nameOf(k.Key, k.JobID, from)] = life{job, from}
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
	from := bucket.MicrosOf(c.Accepted)
	name, refused := p.nameOf(c.Key, c.Job, from), p.refusedAs(c.Key, c.Job)
	of, known := p.open[name]
	if !known {
		if of, known = p.open[refused]; known && of.from <= from && of.from.Until(from) <= p.dedupe {
			delete(p.open, refused)
		} else {
			known = false
		}
	}
	switch {
	case known:
	case c.Polled, from < p.since:
		return
	default:
		of = life{p.job(c.Key, from), from}
		if of.job != noJob && c.Redrives > 0 {
			p.Redriven++
		}
	}
	if of.job != noJob {
		p.add(of.job, c)
	}
	if c.Final {
		delete(p.open, name)
		return
	}
	p.open[name] = of
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
	counts := (c.Sent || c.Billed != deadletter.NotBilled) && !c.Pack.Follows()
	p.trace.Called(job, c.Ended.Sub(c.Started), counts, took)
}

// job adds a job to the trace and returns its number. If no further key fits, it counts the job in LeftOut and returns
// noJob.
func (p *Past) job(key string, from bucket.Micros) int {
	switch {
	case p.trace.Knows(key):
	case *p.left > 0:
		*p.left--
	default:
		p.LeftOut++
		return noJob
	}
	return p.trace.Add(key, from)
}

// nameOf returns a name for a job that a queue accepted at a time.
func (p *Past) nameOf(key, job string, accepted bucket.Micros) uint64 {
	return maphash.Comparable(p.seed, struct {
		key, job string
		accepted bucket.Micros
	}{key, job, accepted})
}

// refusedAs returns a name for a job that no queue took.
func (p *Past) refusedAs(key, job string) uint64 {
	return p.nameOf(key, job, 0)
}

// finish removes the jobs that came after until. It must be called after the last record.
func (p *Past) finish(until time.Time) {
	p.open = nil
	p.trace.Finish(bucket.MicrosOf(until))
}

// Trace returns the jobs.
func (p *Past) Trace() *whatif.Trace { return p.trace }
