package schedule

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
)

// narrowness is what this process knows of how soon a shared limit lets calls start.
type narrowness struct {
	known bool
	tat   bucket.Micros // of a rate: the theoretical arrival time, by what this process was granted or refused
	sure  bucket.Micros // from when on earlier grants to other processes do not matter; 0 before the first grant
	left  int64         // of a quota or budget: units left in its period
	count int64         // of a quota or budget: units in a period
	end   bucket.Micros // end of the period; 0 for one that slides
}

// width returns how many jobs may be staging, ready or granted: as many as every shared limit lets start within
// LongWait, and at least one. A crash makes each of them unknown. If that number is not known, or other
// processes use the limits too, this process counts on as much as it was granted lately: it begins with one job,
// and widens with every grant.
func (s *Schedule) width(now bucket.Micros) int {
	n, known := s.letThrough(now)
	if len(s.rules.Shared) > 0 && (!known || s.store.clock == OtherClock) {
		n = min(n, s.lately.count(now, s.took))
	}
	return min(s.pace.MaxStaged, 1+int(n))
}

// letThrough returns how many calls the shared limits let start within LongWait, less one, and whether that is
// known of all of them.
func (s *Schedule) letThrough(now bucket.Micros) (n float64, known bool) {
	n, known = MaxStaged, true
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; !l.Shadow {
			near, sure := s.letsThrough(i, l, now)
			n, known = min(n, max(0, near)), known && sure
		}
	}
	return n, known
}

// narrowest returns the shared limit that lets the fewest calls start within LongWait, "" if there is none.
func (s *Schedule) narrowest(now bucket.Micros) (name string) {
	least := float64(MaxStaged)
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; !l.Shadow {
			if near, _ := s.letsThrough(i, l, now); near < least {
				least, name = near, l.Name
			}
		}
	}
	return name
}

// letsThrough returns how many calls one shared limit lets start within LongWait, less one, and whether that is
// known.
func (s *Schedule) letsThrough(i int, l *bucket.Limit, now bucket.Micros) (n float64, known bool) {
	by, unit, cost := &s.narrow[i], max(1, s.units[i]), max(1, s.habits.usualCost(s.policy, i))
	soon := now.Add(LongWait)
	switch l.Kind() {
	case bucket.KindRate:
		saved := max(0, float64(s.rules.Burst(*l.Rate))/cost-1)
		near := saved + float64(max(by.tat, now).Until(soon).Microseconds())/(unit*cost)
		return near, by.known || by.sure != 0 && by.sure <= now
	case bucket.KindInFlight:
		most := s.rules.Lowered(l.InFlight)
		return float64(most-int64(s.calls)) + float64(most)*float64(LongWait)/float64(max(1, s.callTime)), true
	case bucket.KindQuota, bucket.KindBudget:
		left := float64(by.left)
		switch {
		case l.Budget != nil && l.Budget.OnExhausted == bucket.DeadLetter:
			return MaxStaged, true // a job that it refuses ends, and must be ready for that
		case !by.known:
			return MaxStaged, false
		case by.end == 0:
			left += float64(LongWait.Microseconds()) / unit // comes back, on an average
		case by.end <= soon:
			left += float64(by.count)
		}
		return left/cost - 1, true
	}
	return MaxStaged, true
}

// narrowBy notes which shared limit refused a job a slot, and until when.
func (s *Schedule) narrowBy(j *Job, w *bucket.Wait) {
	i, l := s.shared(w.Limit)
	if l == nil {
		return
	}
	switch by := &s.narrow[i]; l.Kind() {
	case bucket.KindRate:
		saved := float64(s.rules.Burst(*l.Rate) - max(1, s.costOf(j, w.Limit)))
		by.known, by.tat = true, later(w.Until, max(0, saved), s.units[i])
	case bucket.KindQuota, bucket.KindBudget:
		by.left = 0
	case bucket.KindInFlight: // its permits come back as calls end
	}
}

// widen notes that a job was granted its slot.
func (s *Schedule) widen(j *Job, now bucket.Micros) {
	s.lately.add(now, s.took)
	for i := range min(len(j.Costs), len(s.narrow)) {
		switch l, by := &s.rules.Shared[i], &s.narrow[i]; l.Kind() {
		case bucket.KindRate:
			cost := float64(j.Costs[i])
			most := later(j.At, max(cost, float64(s.rules.Burst(*l.Rate))), s.units[i]) // else the slot would be later
			if by.sure == 0 {
				by.sure = most
			}
			by.tat = min(most, later(max(by.tat, j.At), cost, s.units[i]))
		case bucket.KindQuota, bucket.KindBudget:
			by.left = max(0, by.left-j.Costs[i])
		case bucket.KindInFlight: // its calls are counted as they start
		}
	}
}

// LearnLevels takes in how much of the shared limits is used. The caller must not change levels afterwards.
func (s *Schedule) LearnLevels(levels []bucket.Level) {
	s.levels = levels
	for k := range levels {
		level := &levels[k]
		if i, l := s.shared(level.Limit.Name); l != nil && l.Rate == nil && i < len(s.narrow) {
			s.narrow[i] = narrowness{known: !level.Unknown, left: max(0, level.Count-level.Used), count: level.Count, end: level.End}
		}
	}
}

// lately counts what this process was granted in about the last LongWait; older grants weigh less and less.
type lately struct {
	n  float64
	at bucket.Micros
}

// count returns how many jobs were granted lately. If it takes long to make a job ready, it looks back over a
// longer time. Otherwise few jobs would be ready, so few would be granted, and still fewer would be made ready.
func (l *lately) count(now bucket.Micros, took time.Duration) float64 {
	return l.n * math.Exp(-float64(max(0, l.at.Until(now)))/float64(max(LongWait, 2*took)))
}

func (l *lately) add(now bucket.Micros, took time.Duration) {
	l.n, l.at = l.count(now, took)+1, max(l.at, now)
}

// invites reports whether a queue may make a job ready now, beside the ready jobs that it has without a slot.
// The queue that has the turn may, and so may any queue while no other waits for a turn. A costly queue always
// may have one ready job: what it waits for is kept from the others.
func (s *Schedule) invites(q *KeyQueue, ungranted int64, now bucket.Micros) bool {
	if q.costly && ungranted == 0 || !s.breaker.closed() {
		return true
	}
	if s.unprepared.size > 0 && !q.invited && !q.called {
		return false
	}
	width := s.width(now)
	if width >= s.pace.MaxStaged {
		return true
	}
	each := max(1, width/(1+s.unprepared.size+s.blocked.size))
	return s.staged < width && ungranted < int64(each)
}

// inviteAt returns when the queues in turn must make jobs ready: before the shared limit is asked again, by as
// long as that takes. While the store does not answer, one queue at a time makes one ready, when the store is
// asked again.
func (s *Schedule) inviteAt() bucket.Micros {
	switch {
	case s.store.failures == 0:
		return s.until - bucket.Micros(s.pace.PrepareLead.Microseconds())
	case s.staged == 0:
		return s.until
	}
	return Never
}

// invite gives queues the turn to make a job ready, in the order in which they will have the shared limit.
func (s *Schedule) invite(now bucket.Micros) {
	if now < s.inviteAt() {
		return
	}
	n := s.width(now) - s.staged
	if s.store.failures > 0 {
		n = min(n, 1)
	}
	for ; n > 0; n-- {
		q := s.unprepared.pop()
		if q == nil {
			return
		}
		q.invited = true
		s.Touch(q)
	}
}

// block makes a queue wait for its turn at the shared limits: to ask, or first to make a job ready.
func (s *Schedule) block(q *KeyQueue) {
	if q.count(staging, ready, asking) > 0 {
		s.blocked.push(q)
		s.unprepared.coming = s.blocked.coming
		return
	}
	s.unprepared.push(q)
	s.blocked.coming = s.unprepared.coming
}

// unslot withdraws a job that missed its slot while its queue waits for the turn to make another ready. It is
// made ready again then.
func (s *Schedule) unslot(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.line != roomLine {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready {
			s.withdraw(j, now)
			fx.Stale = append(fx.Stale, j)
		}
	}
}

// withdrawBeyond withdraws ready jobs that wait for a shared limit until no more than most remain. It takes
// first all but one of each queue, then that one, and begins with the queues that will have the limit last. Of a
// queue it takes the newest first, since no job overtakes one that rests.
func (s *Schedule) withdrawBeyond(most int, out *Refused) {
	if s.staged <= most || s.blocked.size == 0 {
		return
	}
	var waiting []*KeyQueue
	count := 0
	for q := s.blocked.pop(); q != nil; q = s.blocked.pop() {
		waiting = append(waiting, q)
		count += q.count(ready)
	}
	for kept := 1; kept >= 0; kept-- {
		for _, q := range slices.Backward(waiting) {
			if q.costly && most > 0 {
				continue
			}
			n := min(q.count(ready)-kept, count-most)
			count -= max(n, 0)
			s.withdrawNewest(q, n, out)
		}
	}
	for _, q := range waiting {
		s.blocked.lend(q, 0)
		if q.count(staging, ready, asking) == 0 {
			s.unprepared.lend(q, 0)
		}
		s.block(q)
	}
}

// withdrawNewest withdraws a queue's n newest ready jobs.
func (s *Schedule) withdrawNewest(q *KeyQueue, n int, out *Refused) {
	for _, j := range slices.Backward(q.Jobs) {
		if n > 0 && j.Phase == ready {
			n--
			s.withdraw(j, s.until)
			out.Withdrawn = append(out.Withdrawn, j)
		}
	}
}

// book counts what a queue was granted, and takes back what it was lent. What it was lent to make a job ready
// stays lent while that job waits for its slot.
func (s *Schedule) book(q *KeyQueue, d serviceTime) {
	s.blocked.took(q, d)
	s.unprepared.clock = s.blocked.clock
	if d > 0 || q.count(staging, ready, asking) == 0 {
		s.unprepared.lend(q, 0)
	} else {
		s.unprepared.reorder(q.tenant)
	}
}

// lendNothing takes back all that a queue was lent.
func (s *Schedule) lendNothing(q *KeyQueue) {
	s.blocked.lend(q, 0)
	s.unprepared.lend(q, 0)
}

// newest returns the start of the queue's newest call that runs or has a slot; 0 if there is none.
func (q *KeyQueue) newest() bucket.Micros {
	var at bucket.Micros
	for _, j := range q.Jobs {
		if j.Phase == granted || j.Phase == calling {
			at = max(at, j.At)
		}
	}
	return at
}

// unstick withdraws a queue's ready jobs behind calls that take longer than expected: they would keep room from
// other queues.
func (s *Schedule) unstick(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.count(ready) == 0 || q.count(granted, asking) > 0 || q.newest().Add(LongWait) > now {
		return
	}
	if free, _ := q.free(now); free > 0 {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready {
			s.withdraw(j, now)
			fx.Stale = append(fx.Stale, j)
		}
	}
}
