package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// While a job waits, waiting.go says what its queue waits for. This file remembers what kept the queue waiting longest,
// until the job has been called or has become a letter. The key's rate and the jobs before the job do not count as
// causes. This memory takes 48 bytes for each queue and nothing for a job. No decision depends on it.

// Holdup is the cause that kept a job from its call for longest, other than the rate of its key and the jobs before it.
// The zero value says that no cause is worth reporting. A queue remembers the three longest causes, and each at least
// until all jobs are called that came before the cause ended. If a cause began and ended while other causes held the
// queue, its time is an estimate, and never more than the job's wait.
type Holdup struct {
	For   WaitFor       // WaitReading also stands for the time before this process had the queue
	Limit string        // name of the limit, for WaitLimit
	Took  time.Duration // in steps of 16 ms
}

// Bounds of a reported holdup. A shorter one than leastHoldup does not matter. One below the holdupShare-th part of a
// wait does not explain the wait.
const (
	leastHoldup = 100 * time.Millisecond
	holdupShare = 10
)

// String returns the words that a letter adds to a wait, such as "while the api was held" in "5s of it while the api
// was held".
func (h Holdup) String() string {
	switch h.For {
	case WaitInFlight:
		return "for a running call of its key to end"
	case WaitLimit:
		return "for limit " + h.Limit
	case WaitHeld:
		return "while its key was held"
	case WaitAPIHeld:
		return "while the api was held"
	case WaitSlowed:
		return "slowed, since the api had pushed back"
	case WaitPaused:
		return "while an operator had paused it"
	case WaitAnswer:
		return "for the answer to an equal job"
	case WaitRetry:
		return "for a retry"
	case WaitLimiter:
		return "for the limiter, which did not answer"
	case WaitRoom:
		return "for room: as many calls ran as the process may make"
	case WaitReading:
		return "for its queue to be read after a start or a takeover"
	case WaitClearing:
		return "for finished jobs to be deleted"
	case WaitNothing, WaitRate, WaitPack, WaitNotBefore, WaitStop:
	}
	return ""
}

// HoldupOf returns what kept a job from its call for longest between since and now. since is the earliest time at which
// the job could have been called. HoldupOf allocates nothing. If the job is being called, HoldupOf forgets causes that
// ended before since: the first calls of a queue start in order, so no later job needs them.
func (v View) HoldupOf(j *Job, since bucket.Micros) Holdup {
	if since <= 0 || v.now <= since {
		return Holdup{}
	}
	h := &j.Queue.holdups
	h.turn(h.cause, tickOf(v.now))
	if j.Phase == calling {
		h.forget(tickOf(since))
	}
	cause, took := h.longest(tickOf(since))
	if d := took.duration(); d >= max(leastHoldup, since.Until(v.now)/holdupShare) {
		return Holdup{For: v.s.causes[cause].For, Limit: v.s.causes[cause].Limit, Took: min(d, since.Until(v.now))}
	}
	return Holdup{}
}

// cause is an index into the causes.
type cause uint8

// The causes that every schedule knows.
const (
	noCause  cause = iota // the key's own rate, the jobs before, or nothing
	unknowns              // this process did not have the queue
)

// causes lists what has kept queues waiting, each cause once. Queues name causes by index.
type causes []Holdup

func firstCauses() causes { return causes{noCause: {}, unknowns: {For: WaitReading}} }

// mostCauses bounds the number of causes: each limit that was ever configured is one.
const mostCauses = 256

// of returns the index of the cause that makes a queue wait, and adds the cause if it is new. It returns noCause if
// mostCauses are known already.
func (c *causes) of(k keeping) cause {
	switch k.what {
	case WaitNothing, WaitRate, WaitPack, WaitNotBefore, WaitStop:
		return noCause
	case WaitInFlight, WaitLimit, WaitHeld, WaitAPIHeld, WaitSlowed, WaitPaused, WaitAnswer, WaitRetry, WaitLimiter, WaitRoom, WaitReading, WaitClearing:
	}
	h := Holdup{For: k.what, Limit: k.limit}
	i := slices.Index(*c, h)
	if i < 0 && len(*c) < mostCauses {
		i, *c = len(*c), append(*c, h)
	}
	return cause(max(i, 0)) //nolint:gosec // below mostCauses
}

// tick is a time in steps of 16.384 ms. It wraps around after two years. A queue that exists for longer reports wrong
// times.
type tick uint32

const tickBits = 14

func tickOf(t bucket.Micros) tick { return tick(uint64(t) >> tickBits) } //nolint:gosec // it comes around

func (t tick) duration() time.Duration { return time.Duration(t) << tickBits * time.Microsecond }

// until returns the time from t to later, 0 if later is before t.
func (t tick) until(later tick) tick {
	if d := later - t; d < 1<<31 {
		return d
	}
	return 0
}

// holdups holds the recent causes that kept a queue from being called, and the present one. It is small, because there
// may be a million queues.
type holdups struct {
	began, since tick // when the queue was first looked at, and when the present cause began
	cause        cause
	of           [3]cause // the causes of the spans; noCause: the span is free
	spans        [3]span
}

// span says when a cause kept a queue waiting: it first began at from and last ended at until. took is the sum of its
// times.
type span struct{ from, until, took tick }

// turn sets the cause that keeps the queue waiting from now on.
func (h *holdups) turn(next cause, now tick) {
	if h.began == 0 {
		h.began = max(now, 1)
	}
	if h.cause != noCause && h.since.until(now) > 0 {
		h.add(h.cause, h.since, now)
	}
	h.cause, h.since = next, now
}

// add notes that a cause kept the queue waiting from one time to another. If there is no free span, the cause
// replaces the one that took least.
func (h *holdups) add(c cause, from, until tick) {
	i := slices.Index(h.of[:], c)
	if i < 0 {
		i = 0
		for other := range h.spans {
			if h.spans[other].took < h.spans[i].took {
				i = other
			}
		}
		h.of[i], h.spans[i] = c, span{from: from}
	}
	h.spans[i].took += from.until(until)
	h.spans[i].until = until
}

// forget drops the causes that ended before a time.
func (h *holdups) forget(at tick) {
	for i := range h.spans {
		if at.until(h.spans[i].until) == 0 {
			h.of[i], h.spans[i] = noCause, span{}
		}
	}
}

// longest returns the cause that kept the queue waiting longest since a time.
func (h *holdups) longest(since tick) (longest cause, took tick) {
	longest, took = unknowns, since.until(h.began)
	for i, k := range h.spans {
		if t := k.after(since); h.of[i] != noCause && (t > took || longest == unknowns && took == 0) {
			longest, took = h.of[i], t
		}
	}
	return longest, took
}

// after estimates how much of a span's time lies after t, as if its cause had been spread evenly.
func (k span) after(t tick) tick {
	whole, part := k.from.until(k.until), t.until(k.until)
	if part >= whole {
		return k.took
	}
	return tick(uint64(k.took) * uint64(part) / uint64(whole)) //nolint:gosec // a part of took
}
