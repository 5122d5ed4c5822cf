package schedule

import (
	"errors"
	"time"

	"weir/bucket"
)

// StoreClock says by which clock a store counts.
type StoreClock int8

// The clocks.
const (
	OwnClock   StoreClock = iota // this process's clock: the store is in this process
	OtherClock                   // another machine's clock: the store is a round trip away
)

// storeLink is the way to the store of slots. It knows by which clock the store counts, how far away the store is, and
// whether it answers.
type storeLink struct {
	clock StoreClock
	// tatOf returns the theoretical arrival time that the store has for a key, 0 if it has none.
	tatOf func(key string) bucket.Micros

	offset   offset        // between our clock and the store's, if they differ
	trip     time.Duration // recent round trip time to that store
	rounds   int           // rounds of asks under way
	failures int           // rounds in a row without an answer
	downAt   bucket.Micros // when the first of these rounds failed
	why      string        // why the store refused the last round; "" if it did not answer
}

// failed notes that a round of asks was refused or not answered, and returns how long to wait before the next round.
func (l *storeLink) failed(now bucket.Micros, err error) time.Duration {
	l.why = ""
	if refusal := (*bucket.Refusal)(nil); errors.As(err, &refusal) {
		l.why = refusal.Err.Error()
	}
	if l.failures == 0 {
		l.downAt = now
	}
	l.failures = min(l.failures+1, 30)
	return min(StoreRetry<<min(l.failures-1, 10), MostStoreRetry)
}

// ask notes that a round of asks is under way.
func (l *storeLink) ask() { l.rounds++ }

// came notes that a round of asks is over, answered or not.
func (l *storeLink) came() { l.rounds-- }

// isAsked reports whether a round of asks is under way.
func (l *storeLink) isAsked() bool { return l.rounds > 0 }

// isDown reports whether the last round of asks was not answered.
func (l *storeLink) isDown() bool { return l.failures > 0 }

// answered notes that a round of asks was answered, and reports whether that ended an outage.
func (l *storeLink) answered() (again bool) {
	again, l.failures = l.failures > 0, 0
	return again
}

// shift returns what must be added to the store's times to get ours, and by how much that may be too large. It also
// updates trip, which follows a longer round trip at once and a shorter one slowly.
func (l *storeLink) shift(r Reply) (shift, unsure bucket.Micros) {
	if l.clock == OwnClock || len(r.Answers) == 0 || r.Answers[0].Now == 0 {
		return 0, 0
	}
	l.offset.observe(r.Sent, r.Came, r.Answers[0].Now)
	for _, t := range r.Trips {
		l.offset.observe(t.Sent, t.Came, t.Now)
	}
	took := r.Sent.Until(r.Came)
	l.trip = max(took, l.trip-l.trip/64+took/64)
	return l.offset.most(), l.offset.unsure()
}

// Trip is a round trip to a store on another machine that takes no slot. It left at Sent and came back at Came, by our
// clock. In between, the clock of the store's slots read Now.
type Trip struct{ Sent, Came, Now bucket.Micros }

// If no answer came for a while, the next one alone bounds the offset of the store's clock, and the longer its round
// trip took, the wider the bounds are. After a slow round trip its slots would be converted to times that are too late.
// The slots of the following answer would not be late, so calls would come too close to each other. Therefore the owner
// makes at most MostTrips further round trips before it calls Answer. Each can only narrow the bounds. While some round
// trip of the last second was about as fast as the fastest known, no further ones are needed.
const (
	MostTrips  = 3
	mostUnsure = bucket.Micros(time.Millisecond / time.Microsecond)
)

// offset tracks how far this process's clock is ahead of the store's. Every round trip bounds it: the store read its
// clock after the asks were sent and before the answer came. A slot that is converted by its own answer alone is never
// too early, but it is too late by the time that the answer took to come back. That time varies: if one call is late by
// much and the next is not, the two come too close to each other. So slots are converted by the least upper bound of
// the last seconds. The uncertainty that remains beyond that of the best round trip counts as lateness.
type offset struct {
	hi, lo   bucket.Micros // bounds from the present second
	oldHi    bucket.Micros // bounds from the second before
	oldLo    bucket.Micros
	since    bucket.Micros // when the present second began
	base     bucket.Micros // the width of the bounds that a round trip leaves at best
	observed bool
}

// offsetWindow is how long a bound holds. In that time, clocks that are slewed drift apart by half a millisecond.
const offsetWindow = bucket.Micros(time.Second / time.Microsecond)

// observe updates the bounds by a round trip. sent and came are by our clock. now is what the store's clock read in
// between.
func (o *offset) observe(sent, came, now bucket.Micros) {
	hi, lo := came-now, sent-now
	switch {
	case !o.observed || hi < o.least() || lo > o.most() || came-o.since > 2*offsetWindow:
		// There are no bounds yet, the clock was set, or the bounds are old.
		*o = offset{hi: hi, lo: lo, oldHi: hi, oldLo: lo, since: came, base: o.base, observed: true}
	case came-o.since > offsetWindow:
		o.oldHi, o.oldLo, o.hi, o.lo, o.since = o.hi, o.lo, hi, lo, came
	default:
		o.hi, o.lo = min(o.hi, hi), max(o.lo, lo)
	}
	width := max(0, o.most()-o.least())
	o.base = min(width, o.base+(width-o.base+offsetPatience-1)/offsetPatience)
}

// offsetPatience is how many slower round trips in a row it takes until base accepts that the way has become longer.
const offsetPatience = 16

func (o *offset) most() bucket.Micros  { return min(o.hi, o.oldHi) }
func (o *offset) least() bucket.Micros { return max(o.lo, o.oldLo) }

// unsure returns by how much a time that was converted by most may be too late.
func (o *offset) unsure() bucket.Micros { return max(0, o.most()-o.least()-o.base) }

// ours converts a store's time to our clock. The result is never too early; it is 0 if the offset is not known.
func (o *offset) ours(at bucket.Micros) bucket.Micros {
	if at == 0 || !o.observed {
		return 0
	}
	return at + o.most()
}

// theirs converts a time by our clock to the store's clock. The result is never too early; it is 0 if the offset is not
// known.
func (o *offset) theirs(at bucket.Micros) bucket.Micros {
	if at == 0 || !o.observed {
		return 0
	}
	return at - o.least()
}

// ourTAT returns the theoretical arrival time that the store has for a key, by our clock; 0 if it has none.
func (l *storeLink) ourTAT(key string) bucket.Micros {
	if l.clock == OwnClock {
		return l.tatOf(key)
	}
	return l.offset.ours(l.tatOf(key))
}

// KnownTAT returns the theoretical arrival time that the store has for a key without a queue, by our clock; 0 if it has
// none.
func (v View) KnownTAT(key string) bucket.Micros { return v.s.store.ourTAT(key) }

// latest returns the time until which a granted call may start. When the slot's time was computed, a best round trip to
// the store was assumed. If the best round trip has since turned out shorter by some time, the slot is too late by that
// time, and latest subtracts it.
func (l *storeLink) latest(j *Job) bucket.Micros {
	return j.last - max(0, j.base-l.offset.base)
}

// IsRough reports whether a reply tells the store's clock so roughly that the owner should make another round trip
// before it calls Answer.
func (v View) IsRough(r *Reply) bool {
	link := v.s.store // a copy, because only Answer may change the link
	_, unsure := link.shift(*r)
	return r.Err == nil && len(r.Trips) < MostTrips && unsure > mostUnsure
}

// Floor returns the theoretical arrival time that a queue's asks must report to the store, by the store's clock.
func (v View) Floor(q *KeyQueue) bucket.Micros {
	if v.s.store.clock == OwnClock {
		return q.TAT
	}
	return max(q.floor, v.s.store.offset.theirs(q.TAT))
}

// Latest returns the time until which the first byte of a granted job's call may leave.
func (v View) Latest(j *Job) bucket.Micros { return v.s.store.latest(j) }
