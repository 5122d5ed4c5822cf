package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

// mostCrashes is how often the handling of one job may crash before it is parked.
const mostCrashes = 2

// mostDeaths is how many owners in a row may die with a call of one job under way before it is parked. Deaths are counted by
// intents. Where an api is not idempotent such a job is parked the first time. Elsewhere it may be as innocent as its worker was
// killed by somebody else: so one death makes nobody a suspect, and it takes several, the last ones with no other suspect's
// call under way.
const (
	suspectFrom = 2
	aloneFrom   = 3
	mostDeaths  = 5
)

// manySuspects bounds the calls of suspects at once.
const manySuspects = 16

// suspects are jobs whose call was under way when two owners died: one of them may have killed both. They are called a few at
// a time, and those that three died over alone, so that the next death tells which. Only a job that was called alone is
// parked.
type suspects struct {
	called  map[*task]struct{} // being made ready or called
	alone   *task              // the one of them that no other may be beside
	waiting map[*line]struct{} // lines with one that waits
}

// mayCall reports whether a resting job may be made ready as far as suspicion goes, and notes it where not.
func (s *suspects) mayCall(t *task) bool {
	switch {
	case t.deaths < suspectFrom,
		s.alone == nil && t.deaths < aloneFrom && len(s.called) < manySuspects,
		s.alone == nil && len(s.called) == 0:
		return true
	}
	if s.waiting == nil {
		s.waiting = map[*line]struct{}{}
	}
	s.waiting[t.line] = struct{}{}
	return false
}

func (s *suspects) call(t *task) {
	if t.deaths < suspectFrom {
		return
	}
	if s.called == nil {
		s.called = map[*task]struct{}{}
	}
	s.called[t] = struct{}{}
	if t.deaths >= aloneFrom {
		s.alone = t
	}
}

// cleared lets the next suspect be called when one rests again or has ended.
func (s *schedule) cleared(t *task) {
	of := &s.suspects
	if _, ok := of.called[t]; !ok {
		return
	}
	delete(of.called, t)
	if of.alone == t {
		of.alone = nil
	}
	waiting := of.waiting
	of.waiting = nil
	for l := range waiting {
		s.touch(l)
	}
}

// crash is a panic while one job was handled. It is that job's alone: the others go on.
type crash struct {
	cause any
	stack []byte
}

func (c *crash) Error() string { return fmt.Sprintf("weir crashed over it: %v", c.cause) }

// contained runs what depends on one job's own data, and returns its panic. It must not be used around what holds a lock
// or changes what jobs share: a panic there has to end the process.
func contained(what func()) (c *crash) {
	defer func() {
		if cause := recover(); cause != nil {
			c = &crash{cause, debug.Stack()}
		}
	}()
	what()
	return nil
}

// read makes a task's job of its message, and reckons what its call costs. A job that crashes this is parked at once: it
// would every time, and it was not called.
func (l *lane) read(t *task, e queue.Entry) (refusal *ingest.Refusal, err error) {
	var job *ingest.Job
	var costs []int64
	c := contained(func() {
		job, refusal = ingest.Restore(ingest.Message{Key: t.line.key, Header: e.Header, Body: e.Data}, t.terms.api.Rule, e.Time)
		if refusal == nil {
			costs, err = t.terms.costs(job)
		}
	})
	if c != nil {
		l.tellCrash(t, c)
		job = &ingest.Job{API: l.name, Key: t.line.key, ID: e.Header.Get(ingest.HeaderJobID), Header: e.Header, Body: e.Data}
		err = c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.job, t.accepted, t.costs = job, bucket.MicrosOf(e.Time), costs
	if !job.Deadline.IsZero() {
		t.deadline = bucket.MicrosOf(job.Deadline)
	}
	if keyed := job.Header.Get(deadletter.HeaderKeyed); keyed != "" && job.Redrives > 0 { // its calls before the redrive were made so
		t.doubt.recall(deadletter.Billed(job.Header.Get(deadletter.HeaderBilled)), keyed)
	}
	return refusal, err
}

// send makes a task's call. Of one that crashes nobody knows whether it was sent.
func (l *lane) send(ctx context.Context, t *task, h httpcall.Hooks) httpcall.Response {
	r := httpcall.Response{Started: time.Now()}
	if c := contained(func() { r = t.terms.call.Call(ctx, t.job, h) }); c != nil {
		l.tellCrash(t, c)
		t.crashes++
		r = httpcall.Response{Sent: true, Err: c, Started: r.Started, Ended: time.Now()}
	}
	return r
}

func (l *lane) tellCrash(t *task, c *crash) {
	l.log.Error("a bug in weir: the handling of a job crashed; please report it with this stack", "key", t.line.key, "seq", t.seq,
		"err", c, "stack", string(c.stack))
}

// crashed parks a job that has crashed too often instead of trying it again.
func (t *task) crashed(o httpcall.Outcome) httpcall.Outcome {
	if o.Verdict == httpcall.Again && t.crashes >= mostCrashes {
		o.Verdict, o.Reason = httpcall.Dead, deadletter.Exhausted
		o.Detail = fmt.Sprintf("given up as poison after %d crashes, the last: %s", t.crashes, o.Detail)
	}
	return o
}
