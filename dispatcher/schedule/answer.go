package schedule

import (
	"errors"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/schedule/turns"
)

// Refused lists the jobs that do not go on to their calls because of the answers to a round of asks.
type Refused struct {
	Withdrawn  []*Job // their slots are far off: they rest until then
	Impossible []*Job // their cost can never pass
	OverBudget []*Job // their budget is used up, and its rule says to bury them
	Unused     []bucket.Use
	News       []HoldChange
	PutOff     bool // jobs that a shared limit has put off for long must ask again: call AskAgain for every queue
}

// Reply is the store's reply to a round of asks.
type Reply struct {
	Sent, Came bucket.Micros // by our clock
	Answers    []bucket.Answer
	Err        error
	Trips      []Trip // made after the reply, if it tells the store's clock too roughly: see IsRough
}

// over returns when the reply was complete.
func (r *Reply) over() bucket.Micros {
	if n := len(r.Trips); n > 0 {
		return r.Trips[n-1].Came
	}
	return r.Came
}

// answering handles a store's reply at the time when it was complete, and gathers the jobs that it stopped.
type answering struct {
	step
	out Refused
}

// Answer handles the store's answers to the asks of one step.
func (s *Schedule) Answer(fx *Effects, r Reply) Refused {
	s.store.came()
	in := answering{step: step{Schedule: s, now: r.over()}}
	if r.Err != nil {
		in.unanswered(fx, r.Err)
		s.packs.loosen(&s.Queues)
		return in.out
	}
	if s.store.answered() {
		s.gate.open() // queues that waited for the store may ask at once
	}
	shift, unsure := s.store.shift(r)
	if s.store.clock == OtherClock { // one trip for the ask, one in case it just missed the previous round, and a tick
		s.Pipe.askAhead(2 * s.store.trip)
	}
	for i, jobs := range fx.asked {
		q, a := jobs[0].Queue, r.Answers[i]
		a.Wait.Until += shift
		if n, told := s.Holds.onBudget(&a, in.now); told {
			in.out.News = append(in.out.News, n)
		}
		former := q.keyPace
		for k, j := range jobs {
			j.Phase = ready
			if k < len(a.Grants) {
				j.asked = r.Sent
				in.grant(j, a.Grants[k], shift, unsure)
				continue
			}
			s.Pipe.exit.leave(j)
			in.refuse(j, &a.Wait)
		}
		if q.passed {
			in.giveBack(q, jobs[0])
			q.TAT, q.cold = former.TAT, former.cold
		}
		turn := jobs[0].turn
		s.Shared.Divided(a.Part)
		s.turns.Heard(q, turn, a.Elsewhere, a.Whole)
		s.turns.Book(q, turn, len(a.Grants))
		s.turns.Refuse(q, turn, 0)
		q.refused("", 0)
		s.Queues.Touch(q)
		if len(a.Grants) < len(jobs) {
			in.wait(q, jobs[0], jobs[len(a.Grants)], turn, &a.Wait)
		}
	}
	s.gate.freed()
	in.withdrawBlocked()
	s.gate.asked = r.Sent
	s.packs.loosen(&s.Queues)
	in.out.Unused, in.out.PutOff = in.fx.Unused, s.gate.takePutOff(in.now)
	return in.out
}

// grant gives a job its slot.
func (s *answering) grant(j *Job, g bucket.Grant, shift, unsure bucket.Micros) {
	q, at := j.Queue, g.At+shift
	j.last = at.Add(s.Pipe.pace.GrantTTL) - unsure
	at = max(at, q.Jobs.lastGranted()) // the shift is not the same each time: a later slot must not look earlier
	j.Phase, j.Grant, j.At, j.base = granted, g, at, s.store.offset.base
	if s.now > s.store.latest(j) {
		s.Pipe.exit.leave(j) // the store's answer came too late: that says nothing of this process
	}
	q.confirm(g.TAT + shift)
	s.paced(j)
	s.gate.replica.Take(at, s.now)
	s.Shared.Granted(&j.Call, at)
	s.Pipe.granted(s.now)
	s.Pipe.without(j, -1)
}

// paced tells the governors that a job was granted its slot. The governor of the api gets the least interval between
// calls: that of the shared rate that slows a job of these costs most, times the number of replicas, because each
// replica has an equal part of the slower pace. If no shared rate limits the job, the interval is the key's own,
// divided by the number of keys.
func (s *answering) paced(j *Job) {
	if !s.Holds.slow(j.Queue) {
		return
	}
	own := s.policy.interval(j.Queue.Limits)
	if g := j.Queue.brake.governor; g != nil {
		g.granted(own, j.At)
	}
	replicas := time.Duration(max(s.Findings.replicas, 1))
	all := min(s.Shared.Interval(j.Costs), limits.LongestInterval/replicas) * replicas
	if all == 0 {
		all = own / time.Duration(max(len(s.Queues.byKey), 1))
	}
	s.Holds.governor.granted(all, j.At)
}

// refuse ends a job whose slot was refused for good, or withdraws it if its wait is long. Otherwise the job stays
// ready.
func (s *answering) refuse(j *Job, w *bucket.Wait) {
	switch {
	case w.Never:
		s.out.Impossible, j.Refused = append(s.out.Impossible, j), w.Limit
		s.end(j)
	case w.Exhausted == bucket.DeadLetter:
		s.out.OverBudget, j.Refused = append(s.out.OverBudget, j), w.Limit
		s.end(j)
	case w.Until > s.now.Add(limits.LongWait):
		if s.Shared.Have(w.Limit) {
			s.gate.putOff = max(s.gate.putOff, w.Until)
		}
		s.withdraw(j, w.Until)
		s.out.Withdrawn = append(s.out.Withdrawn, j)
	}
}

// end takes a job out of the pipeline, because it ends without a call. It counts like a grant, so that another job may
// be made ready in its place.
func (s *answering) end(j *Job) {
	s.unstage(j)
	s.Pipe.granted(s.now)
}

// wait makes a queue wait for the limit that refused it. first is the first job for which the queue asked; refused is
// the first job that got no slot. The queue waits for another turn of the same priority.
func (s *answering) wait(q *KeyQueue, first, refused *Job, turn bucket.Priority, w *bucket.Wait) {
	if w.Limit != ownRate {
		s.gate.scarce = s.now
		s.Shared.Refused(&refused.Call, w)
	}
	if w.Never || w.Exhausted == bucket.DeadLetter {
		return
	}
	q.refused(w.Limit, 0)
	switch cost := s.Shared.CostOf(&first.Call, w.Limit); {
	case w.Limit == ownRate:
		q.refused(w.Limit, w.Until)
	case cost > 1 && s.comesBackWhole(w):
	default:
		s.gate.shut(w.Limit, w.Until)
		if s.turns.Refuse(q, first.turn, cost); cost <= 1 || w.Until <= s.now.Add(limits.LongWait) {
			s.waitInLine(q, turn)
		}
	}
}

// waitInLine makes a queue wait for its turn at the shared limits, unless its partition was lost while it asked.
func (s *answering) waitInLine(q *KeyQueue, of bucket.Priority) {
	if s.Queues.byKey[q.Key] == q {
		s.turns.Wait(q, of)
	}
}

// comesBackWhole reports whether the units of the limit that refused a job come back all at once, and later than
// LongWait from now. The same may hold for the vendor's count. A job that was refused because of its cost then waits
// outside the line, and cheaper jobs of other keys may use what is left. If the units came back bit by bit, the cheaper
// jobs would leave this job nothing.
func (s *answering) comesBackWhole(w *bucket.Wait) bool {
	return w.Until > s.now.Add(limits.LongWait) && (w.Excess > 0 || s.Shared.ComeBackWhole(w.Limit))
}

// unanswered makes every queue of an unanswered round wait. While the store does not answer, one queue at a time asks,
// at growing intervals. After LongWait, unanswered also withdraws the ready jobs that wait: if the process died
// meanwhile, their intents would make them unknown.
func (s *answering) unanswered(fx *Effects, err error) {
	s.gate.shut(storeDown, s.now.Add(s.store.failed(s.now, err)))
	for _, jobs := range fx.asked {
		q := jobs[0].Queue
		for _, j := range jobs {
			j.Phase = ready
			s.Pipe.exit.leave(j)
		}
		s.turns.Book(q, jobs[0].turn, 0)
		q.refused(storeDown, 0)
		s.waitInLine(q, jobs[0].turn)
		s.Queues.Touch(q)
	}
	if s.now >= s.store.downAt.Add(limits.LongWait) {
		s.withdrawBeyond(0)
	}
}

// withdrawBlocked withdraws ready jobs that wait for a shared limit, if the limit opens too late or lets too few of
// them through.
func (s *answering) withdrawBlocked() {
	n, _, _ := s.At(s.now).near()
	most := 1 + int(n)
	if s.gate.isShut(s.now.Add(limits.LongWait)) {
		most = 0
	}
	s.withdrawBeyond(most)
}

// withdrawBeyond withdraws ready jobs that wait for a shared limit until no more than most remain. It first takes all
// but one ready job of each queue, and then the last one too. It begins with the queues whose turns come last, and with
// the newest jobs of a queue, because no job overtakes one that rests.
func (s *answering) withdrawBeyond(most int) {
	if s.Pipe.staged <= most || s.turns.Asking() == 0 {
		return
	}
	waiting, count := s.turns.TakeAll(), 0
	for _, w := range waiting {
		count += readyOf(w)
	}
	for kept := 1; kept >= 0; kept-- {
		for _, w := range slices.Backward(waiting) {
			if w.Queue.seats.State(w.Priority).Costly && most > 0 {
				continue
			}
			n := min(readyOf(w)-kept, count-most)
			count -= max(n, 0)
			s.withdrawNewest(w, n)
		}
	}
	for _, w := range waiting {
		s.turns.PutBack(w)
	}
}

// readyOf returns how many of the jobs are ready for which a queue has waited in a line.
func readyOf(w turns.Taken[*KeyQueue]) int {
	return w.Queue.Jobs.countOf(classSet(0).with(w.Priority), ready)
}

// withdrawNewest withdraws the n newest ready jobs of a queue that has waited in a line.
func (s *answering) withdrawNewest(w turns.Taken[*KeyQueue], n int) {
	for _, j := range slices.Backward(w.Queue.Jobs) {
		if n > 0 && j.Phase == ready && j.turn == w.Priority {
			n--
			s.withdraw(j, s.gate.opens)
			s.out.Withdrawn = append(s.out.Withdrawn, j)
		}
	}
}

// Reasons not to ask the store, besides the shared limits. ownRate is a key's own rate, by the name that the stores
// use. storeDown is a store that did not answer. slowed is a slow start of the api.
const (
	ownRate   = "rate"
	storeDown = "limiter unreachable"
	slowed    = "slow start"

	StoreRetry     = 100 * time.Millisecond
	MostStoreRetry = time.Second
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
	failures int           // rounds in a row that were refused or not answered
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

// isDown reports whether the last round of asks was refused or not answered.
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
