package schedule

import (
	"time"

	"weir/bucket"
)

// WaitFor is what a key's next call waits for: a closed set.
type WaitFor string

// What there is to wait for.
const (
	WaitNothing  WaitFor = "nothing"   // every job of the key is being called
	WaitRate     WaitFor = "rate"      // the key's own rate
	WaitInFlight WaitFor = "in_flight" // one of the key's running calls must end
	WaitLimit    WaitFor = "limit"     // a limit shared by all keys
	WaitHeld     WaitFor = "held"      // the key is held
	WaitAPIHeld  WaitFor = "api_held"  // the api is held
	WaitSlowed   WaitFor = "slowed"    // a slow start after a hold, or a rate that pushback has lowered
	WaitPaused   WaitFor = "paused"    // an operator must resume the key, or the api
	WaitRetry    WaitFor = "retry"     // its failed jobs wait for their retries
	WaitLimiter  WaitFor = "limiter"   // the store of the limits does not answer
	WaitRoom     WaitFor = "room"      // the process runs or prepares as many calls as it may
	WaitReading  WaitFor = "reading"   // the queue is being read after a start or a takeover
	WaitClearing WaitFor = "clearing"  // too many finished jobs are not deleted yet
	WaitStop     WaitFor = "stopping"  // the process stops
)

// Waiting is why a key's next job is not called now.
type Waiting struct {
	For   WaitFor    `json:"for"`
	Limit string     `json:"limit,omitempty"` // its name, for WaitLimit
	Until *time.Time `json:"until,omitempty"` // as far as it is known
	Why   string     `json:"why,omitempty"`   // of a hold, or how the call went that is to be made again
}

// waits says what a line waits for at now: the first of what would keep its next job from being called.
func (s *Schedule) waits(l *KeyQueue, now bucket.Micros) Waiting {
	running := l.count(calling, Settling)
	switch {
	case s.drain:
		return Waiting{For: WaitStop}
	case l.Partition.Stalled:
		return Waiting{For: WaitClearing}
	case !l.Partition.Open, l.Unread:
		return Waiting{For: WaitReading}
	case l.Depth() == running:
		return Waiting{For: WaitNothing}
	case s.paused.api != nil:
		return Waiting{For: WaitPaused, Why: s.paused.api.String()}
	case l.paused:
		p := s.paused.keys[l.Key]
		return Waiting{For: WaitPaused, Why: p.String()}
	case !s.breaker.closed() && s.probe != nil && s.breaker.halfOpen(now):
		return Waiting{For: WaitAPIHeld, Why: s.breaker.trying()}
	case s.breaker.until > max(now, l.held, s.held):
		return waitUntil(WaitAPIHeld, s.breaker.until, s.breaker.reason())
	case s.held > now && s.held >= l.held:
		return waitUntil(WaitAPIHeld, s.held, s.why)
	case l.held > now:
		return waitUntil(WaitHeld, l.held, l.why)
	case l.crowded() > now:
		return waitUntil(WaitInFlight, l.crowded(), "calls of the replica that had its partition before may still run")
	case l.count(granted) > 0:
		return waitUntil(WaitRate, s.nextStart(l), "")
	case int64(l.count(calling)) >= l.Limits.InFlight:
		return Waiting{For: WaitInFlight}
	}
	if at := max(l.earliest(), s.governor.earliest()); at > now {
		return waitUntil(WaitSlowed, at, "")
	}
	slot := bucket.Forecast(*l.Limits, s.Rules.Interval(l.Limits.Rate), l.TAT, now, 1)
	switch {
	case l.queued, l.blocked && s.full():
		return Waiting{For: WaitRoom}
	case l.blocked && s.by == storeDown:
		return Waiting{For: WaitLimiter}
	case l.blocked && s.byInFlight():
		return Waiting{For: WaitLimit, Limit: s.by}
	case l.blocked && s.by != "" && s.until >= slot:
		w := waitUntil(WaitLimit, s.until, "")
		w.Limit = s.by
		return w
	}
	if t := l.nextRetry(); t != nil && t.NotBefore > slot {
		w := waitUntil(WaitRetry, t.NotBefore, t.Failed)
		if t.limited && l.binds != "" {
			w.For, w.Limit, w.Why = WaitLimit, l.binds, ""
		}
		return w
	}
	return waitUntil(WaitRate, slot, "")
}

// nextRetry is the first of the line's resting jobs that may be called again; nil where another job could be called
// before.
func (l *KeyQueue) nextRetry() (next *Job) {
	for _, t := range l.Jobs {
		switch t.Phase {
		case resting:
			if next == nil || t.NotBefore < next.NotBefore {
				next = t
			}
		case staging, ready, asking, granted:
			return nil
		}
	}
	if next == nil || next.NotBefore >= Never-1 || l.first != 0 && (!next.limited || next.Calls > 0) {
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
