package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// Holds keeps an api, or keys of it, from being called for a time. Its causes are the api's answers, the breaker, the
// slow start after a hold, an operator's pauses, and a spent budget, which it only reports. It owns the brake of every
// queue. It never grants a call: it only says that a slot must not be asked for yet. A hold is never shortened, except
// that an operator may let the breaker's probe be made at once.
type Holds struct {
	held     bucket.Micros // no call of the api before then
	why      string
	pushes   int16                // pushbacks of the api in a row
	keys     map[*KeyQueue]string // the queues whose holds may still last, with the reasons
	paused   pauses
	breaker  breaker
	tried    bucket.Micros // when the breaker's probe was last brought forward
	welcome  bucket.Micros // start of the newest call that the api answered without fault or pushback
	governor governor      // of the api
	spent    bucket.Micros // when the spent budget begins again; 0: none is spent
	spentBy  string        // name of the spent budget
	common   *Findings     // the part of these holds that the replicas share
	policy   *Policy       // the present one
	queues   *Queues       // whose queues are held
}

// brake keeps one key from being called, in addition to the holds of its api. The zero brake holds nothing.
type brake struct {
	held     bucket.Micros // no call before
	governor *governor     // nil until the queue has a hold of its own, or pushback
	pushes   int16         // pushbacks in a row
	paused   bool          // by an operator
}

func newHolds(p *Policy, queues *Queues, common *Findings) Holds {
	return Holds{policy: p, queues: queues, common: common, keys: map[*KeyQueue]string{}, paused: pauses{keys: map[string]Pause{}}}
}

// adopt puts a new policy in force.
func (h *Holds) adopt(next *Policy) {
	h.policy = next
	if next.Breaker.Failures == 0 && !h.breaker.denied {
		h.breaker = breaker{}
		h.common.turned, h.common.alone, h.common.claim = false, false, 0
	}
}

// MostHold bounds the hold that an api's answer may ask for, and a hold that is restored after a restart.
const MostHold = 24 * time.Hour

// hold keeps a queue, or the whole api if q is nil, from calling before the time until. It never shortens a hold.
func (h *Holds) hold(q *KeyQueue, until bucket.Micros, why string) {
	switch {
	case q == nil && until > h.held:
		h.held, h.why = until, why
	case q != nil && until > q.brake.held:
		q.brake.held, h.keys[q] = until, why
	}
}

// of returns the time before which a queue must not be called, Never while it is paused.
func (h *Holds) of(q *KeyQueue) bucket.Micros {
	if q.brake.paused || h.paused.api != nil {
		return Never
	}
	return max(q.brake.held, h.held, h.breaker.until, q.crowded())
}

// end ends the api's holds whose time is over, and returns how many it ended. shared says whether the replicas share
// the first hold that it ended. A slow start begins, unless the only hold was a spent budget.
func (h *Holds) end(now bucket.Micros) (ended int, shared bool) {
	if h.held != 0 && h.held <= now {
		shared = h.held <= h.common.shared.Add(tellLonger)
		h.held = 0
		h.governor.restart(now)
		ended++
	}
	if h.spent != 0 && h.spent <= now {
		h.spent = 0
		ended++
	}
	return ended, shared
}

// endOf ends the hold of a queue if its time is over, and reports whether it did. A slow start of the queue begins.
func (h *Holds) endOf(q *KeyQueue, now bucket.Micros) bool {
	if q.brake.held == 0 || q.brake.held > now {
		return false
	}
	q.brake.held = 0
	delete(h.keys, q)
	if q.brake.governor == nil {
		q.brake.governor = &governor{}
	}
	q.brake.governor.restart(now)
	return true
}

// forget drops the hold of a queue.
func (h *Holds) forget(q *KeyQueue) { delete(h.keys, q) }

// next returns when the api's next hold ends, Never if there is none.
func (h *Holds) next() bucket.Micros {
	next := Never
	if h.held != 0 {
		next = h.held
	}
	if h.spent != 0 {
		next = min(next, h.spent)
	}
	return next
}

// tryNow lets an open breaker's probe be made at once, and reports whether the breaker was open.
func (h *Holds) tryNow(now bucket.Micros) bool {
	if h.breaker.closed() {
		return false
	}
	h.breaker.until, h.tried = min(h.breaker.until, now), now
	return true
}

// restAt returns when a job that must rest until notBefore may be called. This is sooner if an operator ended the job's
// wait while its outcome was being stored.
func (h *Holds) restAt(j *Job, notBefore bucket.Micros) bucket.Micros {
	if j.tripped && j.judged <= h.tried {
		return min(notBefore, h.tried)
	}
	return notBefore
}

// onBudget notes whether an answer refused a job because a budget is spent. The store itself enforces this hold until
// the budget begins again, so the schedule keeps it only to report it, and goes on asking the store.
func (h *Holds) onBudget(a *bucket.Answer, now bucket.Micros) (HoldChange, bool) {
	switch {
	case len(a.Grants) > 0 && h.spent != 0:
		h.spent = 0
		return HoldChange{Why: "there is money again"}, true
	case len(a.Grants) == 0 && a.Wait.Until > now.Add(limits.LongWait) && a.Wait.Exhausted == bucket.Hold:
		former := h.spent
		h.spent, h.spentBy = a.Wait.Until, a.Wait.Limit
		return HoldChange{Until: h.spent, Why: spentText(h.spentBy)}, former == 0
	}
	return HoldChange{}, false
}

func spentText(budget string) string { return "the budget " + budget + " is spent" }

// earliest returns when the queue's own governor lets it ask for its next slot, 0 if nothing slows it.
func (b *brake) earliest() bucket.Micros {
	if b.governor == nil {
		return 0
	}
	return b.governor.earliest()
}

// relax lets the ceilings of the governors grow up to now, and drops the queue's governor if it slows nothing any more.
// a is nil if the rate does not adapt.
func (h *Holds) relax(q *KeyQueue, a *Adaptive, now bucket.Micros) {
	h.governor.grow(a, now)
	if g := q.brake.governor; g != nil {
		if g.grow(a, now); !g.slows() {
			q.brake.governor = nil
		}
	}
}

// slow reports whether a queue may ask only for one slot at a time.
func (h *Holds) slow(q *KeyQueue) bool { return q.brake.governor != nil || h.governor.slows() }

// outdated reports whether a job's slot was asked for before a slow start began that must pace the job.
func (h *Holds) outdated(j *Job) bool {
	g := j.Queue.brake.governor
	return j.asked < h.governor.began || g != nil && j.asked < g.began
}

// closedUntil returns until when no request about a key may be sent to the api. The key's queue may be nil.
func (h *Holds) closedUntil(key string, q *KeyQueue, now bucket.Micros) bucket.Micros {
	if _, paused := h.paused.keys[key]; paused || h.paused.api != nil {
		return Never
	}
	until := max(h.held, h.breaker.until)
	if !h.breaker.closed() {
		until = max(until, now.Add(StoreRetry)) // only the probe may be sent, and an inquiry is no probe
	}
	if q != nil {
		until = max(until, q.brake.held)
	}
	if until <= now {
		return 0
	}
	return until
}

// count counts the held keys, and the api as one more if it is held. Pauses are no holds.
func (h *Holds) count(now bucket.Micros) (n int) {
	for q := range h.keys {
		if q.brake.held <= now {
			delete(h.keys, q)
		} else {
			n++
		}
	}
	if max(h.held, h.breaker.until, h.spent) > now || h.breaker.denied {
		n++
	}
	return n
}

// HoldState is a hold that no operator made: of a key, or of the whole api if Key is "".
type HoldState struct {
	Key   string    `json:"key,omitempty"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
	// Fault says that an operator must repair something: the api denies weir, or its calls keep failing.
	Fault bool `json:"fault,omitempty"`
	// Budget names the spent budget that holds the api, if one does.
	Budget string `json:"budget,omitempty"`
}

// mostHolds bounds the held keys that list sorts, because calls wait meanwhile. If more keys are held, list chooses
// arbitrary ones.
const mostHolds = 1000

// list lists the holds in force at now: first the api's hold, then at most limit of the keys' holds, ordered by when
// they end. keys is the number of all held keys.
func (h *Holds) list(limit int, now bucket.Micros) (all []HoldState, keys int) {
	for q, why := range h.keys {
		if q.brake.held > now {
			if keys++; len(all) < mostHolds {
				all = append(all, HoldState{Key: q.Key, Until: q.brake.held.Time(), Why: why})
			}
		}
	}
	slices.SortFunc(all, func(a, b HoldState) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Key, b.Key))
	})
	all = all[:min(len(all), limit)]
	if of, held := h.ofAPI(now); held {
		all = slices.Insert(all, 0, of)
	}
	return all, keys
}

// ofAPI returns the hold of the whole api at now.
func (h *Holds) ofAPI(now bucket.Micros) (of HoldState, held bool) {
	switch b := &h.breaker; {
	case b.until > now && b.until >= h.held, !b.closed() && h.held <= now: // or until is over and no probe was answered
		return HoldState{Until: b.until.Time(), Why: b.reason(), Fault: true}, true
	case h.held > now:
		return HoldState{Until: h.held.Time(), Why: h.why}, true
	case h.spent > now:
		return HoldState{Until: h.spent.Time(), Why: spentText(h.spentBy), Budget: h.spentBy}, true
	}
	return HoldState{}, false
}

// atOnce returns how many jobs of a queue may be ready or granted at the same time, running calls included if they are
// long: one while its governor slows it.
func (q *KeyQueue) atOnce() int64 {
	if g := q.brake.governor; g != nil && g.slows() {
		return 1
	}
	return q.Limits.InFlight
}

// Hold lets a queue, or the whole api if q is nil, start no call before the time until. It never shortens a hold.
func (h *Holds) Hold(q *KeyQueue, until bucket.Micros, why string) {
	h.hold(q, until, why)
	if q != nil {
		h.queues.Touch(q)
	}
}

// HoldLonger is Hold for the whole api. It returns the hold if the api was not held before.
func (h *Holds) HoldLonger(until bucket.Micros, why string, now bucket.Micros) (news []HoldChange) {
	if h.held <= now {
		news = append(news, HoldChange{Until: until, Why: why})
	}
	h.Hold(nil, until, why)
	h.common.found(until, why)
	return news
}

// Pause is an operator's order not to call a key, or a whole api, until they resume it or its time is over. The
// dispatcher, which keeps the pauses, calls Resume then. The schedule uses the end of a pause only to forecast
// when calls should start.
type Pause struct {
	At    time.Time `json:"at"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	ForMS int64     `json:"for_ms,omitempty"` // its length from when it was stored; 0: until it is resumed
	Until time.Time `json:"until,omitzero"`   // when its time is over; zero if it has no end
}

// String says who paused and why, as far as the operator said.
func (p Pause) String() string {
	s := "paused"
	if p.By != "" {
		s += " by " + p.By
	}
	s += " at " + p.At.UTC().Format(time.RFC3339)
	if !p.Until.IsZero() {
		s += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Why != "" {
		s += ": " + p.Why
	}
	return s
}

// pauses holds the pauses in force for an api.
type pauses struct {
	api  *Pause
	keys map[string]Pause
}

// of returns the pause that keeps a key from being called: the key's own, or the api's if that one ends later. It
// returns nil if there is none.
func (p *pauses) of(key string) *Pause {
	own, paused := p.keys[key]
	switch {
	case !paused:
		return p.api
	case p.api != nil && !own.Until.IsZero() && (p.api.Until.IsZero() || p.api.Until.After(own.Until)):
		return p.api
	}
	return &own
}

// count counts the paused keys that are ours, and the api as one more if it is paused.
func (p *pauses) count(ours func(key string) bool) (n int) {
	for key := range p.keys {
		if ours(key) {
			n++
		}
	}
	if p.api != nil {
		n++
	}
	return n
}

// until returns when a pause is over, Never if it has no end.
func (p *Pause) until() bucket.Micros {
	if p.Until.IsZero() {
		return Never
	}
	return bucket.MicrosOf(p.Until)
}

// Pause keeps a key, or the whole api if key is "", from being called until it is resumed. Granted slots go
// back.
func (h *Holds) Pause(key string, p Pause) {
	if key == "" {
		h.paused.api = &p
		h.queues.touchAll()
		return
	}
	h.paused.keys[key] = p
	if q := h.queues.byKey[key]; q != nil {
		q.brake.paused = true
		h.queues.Touch(q)
	}
}

// IsPaused reports whether an operator keeps a queue from being called.
func (h *Holds) IsPaused(q *KeyQueue) bool { return q.brake.paused || h.paused.api != nil }

// Resume ends a pause. Holds by the api or a limit stay in force.
func (h *Holds) Resume(key string, now bucket.Micros) {
	if key == "" {
		h.paused.api = nil
		for _, q := range h.queues.all {
			q.Jobs.rouse(now)
			h.queues.Touch(q)
		}
		return
	}
	delete(h.paused.keys, key)
	if q := h.queues.byKey[key]; q != nil {
		q.brake.paused = false
		q.Jobs.rouse(now)
		h.queues.Touch(q)
	}
}

// TryNow lets an open breaker's probe be made at once, because an operator says that the api works again. Holds that
// the api's answers asked for stay in force. TryNow reports whether the breaker was open.
func (h *Holds) TryNow(now bucket.Micros) bool {
	if !h.tryNow(now) {
		return false
	}
	for _, q := range h.queues.all {
		for _, j := range q.Jobs {
			if j.Phase == resting && j.tripped {
				j.NotBefore = min(j.NotBefore, now)
			}
		}
		q.Jobs.rouse(now)
		h.queues.Touch(q)
	}
	return true
}
