package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// WaitFor is what a key's next call waits for: a closed set.
type WaitFor string

// The things to wait for.
const (
	WaitNothing   WaitFor = "nothing"    // every job of the key is being called
	WaitRate      WaitFor = "rate"       // the key's own rate
	WaitInFlight  WaitFor = "in_flight"  // one of the key's running calls must end
	WaitLimit     WaitFor = "limit"      // a limit shared by all keys
	WaitHeld      WaitFor = "held"       // the key is held
	WaitAPIHeld   WaitFor = "api_held"   // the api is held
	WaitSlowed    WaitFor = "slowed"     // a slow start after a hold, or a rate that pushback has lowered
	WaitPaused    WaitFor = "paused"     // an operator must resume the key, or the api
	WaitAnswer    WaitFor = "answer"     // its next job ends with the answer of an equal job, which is being called
	WaitNotBefore WaitFor = "not_before" // none of its jobs may be called yet, as their producers asked
	WaitPack      WaitFor = "pack"       // its next call waits for more jobs, to take them together
	WaitRetry     WaitFor = "retry"      // its failed jobs wait for their retries
	WaitLimiter   WaitFor = "limiter"    // the store of the limits does not answer, or refuses
	WaitRoom      WaitFor = "room"       // the process runs or prepares as many calls as it may
	WaitReading   WaitFor = "reading"    // the queue is being read after a start or a takeover
	WaitClearing  WaitFor = "clearing"   // too many finished jobs are not deleted yet
	WaitStop      WaitFor = "stopping"   // the process stops
)

// Waiting says why a key's next job is not called now.
type Waiting struct {
	For   WaitFor    `json:"for"`
	Limit string     `json:"limit,omitempty"` // its name, for WaitLimit
	Until *time.Time `json:"until,omitempty"` // if it is known
	Why   string     `json:"why,omitempty"`   // the reason of the hold, of the failed call that will be repeated, or why the store refuses
}

// waits returns what keeps a queue's next job from being called now. If several things do, it returns the first in the
// order of keeps.
func (v View) waits(q *KeyQueue) Waiting {
	k := v.keeps(q)
	switch pause := v.s.Holds.paused.of(q.Key); {
	case k.what == WaitPaused, k.what == WaitNothing && len(q.polled) > 0 && pause != nil: // weir does not poll either
		return pause.waiting()
	case k.what == WaitPack:
		k.until = max(v.now, v.gatheredUntil(q))
	}
	w := waitUntil(k.what, k.until, k.why)
	w.Limit = k.limit
	switch {
	case k.byBreaker && v.s.Holds.breaker.halfOpen(v.now):
		w.Why = v.s.Holds.breaker.trying()
	case k.byBreaker:
		w.Why = v.s.Holds.breaker.reason()
	}
	return w
}

// keeping is the cause that keeps a queue waiting. It leaves out details of Waiting that need an allocation.
type keeping struct {
	what      WaitFor
	until     bucket.Micros // Never if it is not known or not reported
	limit     string        // name of the limit, for WaitLimit
	why       string
	byBreaker bool // the breaker says why
}

// keeps returns the cause that keeps a queue waiting now. It allocates nothing, because each advance of a queue calls
// it.
func (v View) keeps(q *KeyQueue) keeping {
	running := q.Jobs.under(calling, settling) + len(q.polled)
	switch {
	case v.s.drain:
		return keeping{what: WaitStop, until: Never}
	case q.Partition.Stalled:
		return keeping{what: WaitClearing, until: Never}
	case !q.Partition.Open, q.Unread:
		return keeping{what: WaitReading, until: Never}
	case q.Depth() == running:
		return keeping{what: WaitNothing, until: Never}
	case v.s.Holds.paused.api != nil, q.brake.paused:
		return keeping{what: WaitPaused, until: Never}
	case q.waits.HasEarly() && q.Depth()-q.waits.NotDue() == running:
		return keeping{what: WaitNotBefore, until: q.waits.FirstDue()}
	case v.s.policy.Reuse && q.awaiting() != nil:
		return keeping{what: WaitAnswer, until: Never, why: q.awaiting().awaits}
	case (v.s.Holds.breaker.probe != nil || !v.s.Findings.mayProbe()) && v.s.Holds.breaker.halfOpen(v.now):
		return keeping{what: WaitAPIHeld, until: Never, byBreaker: true}
	case v.s.Holds.breaker.until > max(v.now, q.brake.held, v.s.Holds.held):
		return keeping{what: WaitAPIHeld, until: v.s.Holds.breaker.until, byBreaker: true}
	case v.s.Holds.held > v.now && v.s.Holds.held >= q.brake.held:
		return keeping{what: WaitAPIHeld, until: v.s.Holds.held, why: v.s.Holds.why}
	case q.brake.held > v.now:
		return keeping{what: WaitHeld, until: q.brake.held, why: v.s.Holds.keys[q]}
	case q.Jobs.count(granted) > 0:
		return keeping{what: WaitRate, until: q.Jobs.nextStart()}
	case int64(q.Jobs.count(calling)+int(q.held)) >= q.Limits.InFlight:
		return keeping{what: WaitInFlight, until: Never}
	case int64(q.Jobs.count(calling))+q.lent(v.now) >= q.Limits.InFlight: // a call of its own may end earlier
		return keeping{what: WaitInFlight, until: q.returned(v.now), why: "calls of the replica that had its partition before may still run"}
	}
	slot := v.s.policy.slot(q.Limits, q.TAT, v.now, 1)
	// If the key's own slot is later, the governors do not matter.
	if at := max(q.brake.earliest(), v.s.Holds.governor.earliest()); at > max(v.now, slot) {
		return keeping{what: WaitSlowed, until: at}
	}
	switch blocked, queued := q.seats.Waits(); {
	case queued, blocked && v.s.Pipe.isFull():
		return keeping{what: WaitRoom, until: Never}
	case blocked && v.s.gate.by == storeDown:
		return keeping{what: WaitLimiter, until: Never, why: v.s.store.why}
	case blocked && v.s.Shared.AreInFlight(v.s.gate.by):
		return keeping{what: WaitLimit, until: Never, limit: v.s.gate.by}
	case blocked && v.s.gate.by != "" && v.s.gate.opens >= slot:
		return keeping{what: WaitLimit, until: v.s.gate.opens, limit: v.s.gate.by}
	case blocked && v.s.gate.by == "" && q.Jobs.ungranted() == 0 && v.s.Pipe.staged >= v.width():
		if _, _, limit := v.near(); limit != "" { // it has refused no job, but lets no other job become ready
			return keeping{what: WaitLimit, until: slot, limit: limit}
		}
	}
	if j := q.nextRetry(); j != nil && j.NotBefore > slot {
		if j.limited && q.binds != "" {
			return keeping{what: WaitLimit, until: j.NotBefore, limit: q.binds}
		}
		return keeping{what: WaitRetry, until: j.NotBefore, why: j.Failed}
	}
	if since := v.s.packs.since[q].first(); since != 0 && v.s.policy.Packs != nil {
		if until := since.Add(v.s.policy.Packs.Wait); until > max(v.now, slot) {
			return keeping{what: WaitPack, until: until}
		}
	}
	return keeping{what: WaitRate, until: slot}
}

// waiting describes a pause as what a key waits for.
func (p *Pause) waiting() Waiting {
	w := Waiting{For: WaitPaused, Why: p.String()}
	if !p.Until.IsZero() {
		until := p.Until
		w.Until = &until
	}
	return w
}

// nextRetry returns the resting job of the queue that may be called again first. It returns nil if another job could be
// called before it.
func (q *KeyQueue) nextRetry() (next *Job) {
	for _, j := range q.Jobs {
		switch j.Phase {
		case resting:
			if next == nil || j.NotBefore < next.NotBefore {
				next = j
			}
		case looking, staging, ready, asking, granted:
			return nil
		}
	}
	if next == nil || next.NotBefore >= Never-1 || q.waits.HasNext() && (!next.limited || next.Calls > 0) {
		return nil
	}
	return next
}

func waitUntil(what WaitFor, until bucket.Micros, why string) Waiting {
	w := Waiting{For: what, Why: why}
	if until < Never-1 {
		at := until.Time()
		w.Until = &at
	}
	return w
}

// While a job waits, View.waits says what its queue waits for. A queue remembers what kept it waiting longest,
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
		return "for the limiter, which did not answer or refused"
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
