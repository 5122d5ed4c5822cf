package schedule

import (
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
	switch pause := v.s.holds.paused.of(q.Key); {
	case k.what == WaitPaused, k.what == WaitNothing && len(q.polled) > 0 && pause != nil: // weir does not poll either
		return pause.waiting()
	case k.what == WaitPack:
		k.until = max(v.now, v.gatheredUntil(q))
	}
	w := waitUntil(k.what, k.until, k.why)
	w.Limit = k.limit
	switch {
	case k.byBreaker && v.s.holds.breaker.halfOpen(v.now):
		w.Why = v.s.holds.breaker.trying()
	case k.byBreaker:
		w.Why = v.s.holds.breaker.reason()
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
	running := q.under(calling, settling) + len(q.polled)
	switch {
	case v.s.drain:
		return keeping{what: WaitStop, until: Never}
	case q.Partition.Stalled:
		return keeping{what: WaitClearing, until: Never}
	case !q.Partition.Open, q.Unread:
		return keeping{what: WaitReading, until: Never}
	case q.Depth() == running:
		return keeping{what: WaitNothing, until: Never}
	case v.s.holds.paused.api != nil, q.brake.paused:
		return keeping{what: WaitPaused, until: Never}
	case q.waits.hasEarly() && q.Depth()-q.waits.notDue() == running:
		return keeping{what: WaitNotBefore, until: q.waits.firstDue()}
	case v.s.policy.Reuse && q.awaiting() != nil:
		return keeping{what: WaitAnswer, until: Never, why: q.awaiting().awaits}
	case (v.s.holds.breaker.probe != nil || !v.s.holds.mayProbe()) && v.s.holds.breaker.halfOpen(v.now):
		return keeping{what: WaitAPIHeld, until: Never, byBreaker: true}
	case v.s.holds.breaker.until > max(v.now, q.brake.held, v.s.holds.held):
		return keeping{what: WaitAPIHeld, until: v.s.holds.breaker.until, byBreaker: true}
	case v.s.holds.held > v.now && v.s.holds.held >= q.brake.held:
		return keeping{what: WaitAPIHeld, until: v.s.holds.held, why: v.s.holds.why}
	case q.brake.held > v.now:
		return keeping{what: WaitHeld, until: q.brake.held, why: v.s.holds.keys[q]}
	case q.crowded() > v.now:
		return keeping{what: WaitInFlight, until: q.crowded(), why: "calls of the replica that had its partition before may still run"}
	case q.count(granted) > 0:
		return keeping{what: WaitRate, until: q.nextStart()}
	case int64(q.count(calling)+int(q.held)) >= q.Limits.InFlight:
		return keeping{what: WaitInFlight, until: Never}
	}
	slot := v.s.policy.slot(q.Limits, q.TAT, v.now, 1)
	// If the key's own slot is later, the governors do not matter.
	if at := max(q.brake.earliest(), v.s.holds.governor.earliest()); at > max(v.now, slot) {
		return keeping{what: WaitSlowed, until: at}
	}
	switch blocked, queued := q.waitsForTurn(); {
	case queued, blocked && v.s.isFull():
		return keeping{what: WaitRoom, until: Never}
	case blocked && v.s.gate.by == storeDown:
		return keeping{what: WaitLimiter, until: Never, why: v.s.store.why}
	case blocked && v.s.Shared.areInFlight(v.s.gate.by):
		return keeping{what: WaitLimit, until: Never, limit: v.s.gate.by}
	case blocked && v.s.gate.by != "" && v.s.gate.opens >= slot:
		return keeping{what: WaitLimit, until: v.s.gate.opens, limit: v.s.gate.by}
	case blocked && v.s.gate.by == "" && q.ungranted() == 0 && v.s.Pipe.staged >= v.width():
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
	if next == nil || next.NotBefore >= Never-1 || q.waits.hasNext() && (!next.limited || next.Calls > 0) {
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
