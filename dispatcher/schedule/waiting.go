package schedule

import (
	"time"

	"weir/bucket"
)

// WaitFor is what a key's next call waits for: a closed set.
type WaitFor string

// What there is to wait for.
const (
	WaitNothing   WaitFor = "nothing"    // every job of the key is being called
	WaitRate      WaitFor = "rate"       // the key's own rate
	WaitInFlight  WaitFor = "in_flight"  // one of the key's running calls must end
	WaitLimit     WaitFor = "limit"      // a limit shared by all keys
	WaitHeld      WaitFor = "held"       // the key is held
	WaitAPIHeld   WaitFor = "api_held"   // the api is held
	WaitSlowed    WaitFor = "slowed"     // a slow start after a hold, or a rate that pushback has lowered
	WaitPaused    WaitFor = "paused"     // an operator must resume the key, or the api
	WaitNotBefore WaitFor = "not_before" // each of its jobs asked not to be called yet
	WaitRetry     WaitFor = "retry"      // its failed jobs wait for their retries
	WaitLimiter   WaitFor = "limiter"    // the store of the limits does not answer
	WaitRoom      WaitFor = "room"       // the process runs or prepares as many calls as it may
	WaitReading   WaitFor = "reading"    // the queue is being read after a start or a takeover
	WaitClearing  WaitFor = "clearing"   // too many finished jobs are not deleted yet
	WaitStop      WaitFor = "stopping"   // the process stops
)

// Waiting is why a key's next job is not called now.
type Waiting struct {
	For   WaitFor    `json:"for"`
	Limit string     `json:"limit,omitempty"` // its name, for WaitLimit
	Until *time.Time `json:"until,omitempty"` // as far as it is known
	Why   string     `json:"why,omitempty"`   // of a hold, or how the call went that is to be made again
}

// waits says what a queue waits for at now: the first of what would keep its next job from being called.
func (v View) waits(q *KeyQueue) Waiting {
	running := q.count(calling, settling)
	switch {
	case v.s.drain:
		return Waiting{For: WaitStop}
	case q.Partition.Stalled:
		return Waiting{For: WaitClearing}
	case !q.Partition.Open, q.Unread:
		return Waiting{For: WaitReading}
	case q.Depth() == running:
		return Waiting{For: WaitNothing}
	case v.s.paused.api != nil, q.paused:
		return v.s.paused.of(q.Key).waiting()
	case q.early != nil && q.Depth()-q.early.size == running:
		return waitUntil(WaitNotBefore, q.early.next(), "")
	case !v.s.breaker.closed() && v.s.breaker.probe != nil && v.s.breaker.halfOpen(v.now):
		return Waiting{For: WaitAPIHeld, Why: v.s.breaker.trying()}
	case v.s.breaker.until > max(v.now, q.held, v.s.held):
		return waitUntil(WaitAPIHeld, v.s.breaker.until, v.s.breaker.reason())
	case v.s.held > v.now && v.s.held >= q.held:
		return waitUntil(WaitAPIHeld, v.s.held, v.s.why)
	case q.held > v.now:
		return waitUntil(WaitHeld, q.held, q.why)
	case q.crowded() > v.now:
		return waitUntil(WaitInFlight, q.crowded(), "calls of the replica that had its partition before may still run")
	case q.count(granted) > 0:
		return waitUntil(WaitRate, v.s.nextStart(q), "")
	case int64(q.count(calling)) >= q.Limits.InFlight:
		return Waiting{For: WaitInFlight}
	}
	if at := max(q.earliest(), v.s.governor.earliest()); at > v.now {
		return waitUntil(WaitSlowed, at, "")
	}
	slot := bucket.Forecast(*q.Limits, v.s.rules.Interval(q.Limits.Rate), q.TAT, v.now, 1)
	switch {
	case q.queued, q.blocked && v.s.full():
		return Waiting{For: WaitRoom}
	case q.blocked && v.s.by == storeDown:
		return Waiting{For: WaitLimiter}
	case q.blocked && v.s.byInFlight():
		return Waiting{For: WaitLimit, Limit: v.s.by}
	case q.blocked && v.s.by != "" && v.s.until >= slot:
		w := waitUntil(WaitLimit, v.s.until, "")
		w.Limit = v.s.by
		return w
	}
	if j := q.nextRetry(); j != nil && j.NotBefore > slot {
		w := waitUntil(WaitRetry, j.NotBefore, j.Failed)
		if j.limited && q.binds != "" {
			w.For, w.Limit, w.Why = WaitLimit, q.binds, ""
		}
		return w
	}
	return waitUntil(WaitRate, slot, "")
}

// waiting says of a pause what waits for it.
func (p *Pause) waiting() Waiting {
	w := Waiting{For: WaitPaused, Why: p.String()}
	if !p.Until.IsZero() {
		until := p.Until
		w.Until = &until
	}
	return w
}

// nextRetry is the first of the queue's resting jobs that may be called again; nil where another job could be called
// before.
func (q *KeyQueue) nextRetry() (next *Job) {
	for _, j := range q.Jobs {
		switch j.Phase {
		case resting:
			if next == nil || j.NotBefore < next.NotBefore {
				next = j
			}
		case staging, ready, asking, granted:
			return nil
		}
	}
	if next == nil || next.NotBefore >= Never-1 || q.hasNext() && (!next.limited || next.Calls > 0) {
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
