package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// replicaLimits holds the limits that each replica has for itself (Rules.Replica). They need no store, because they
// count only calls of this process.
//
// While there are such limits, each round of asks has only one call. So a call is within all limits, or is not made: it
// must pass these limits before the schedule asks the store, and the store grants or refuses its slot for all other
// limits in one step. These limits count a call when the store grants its slot. If the call gives the slot back, they
// take it back too.
type replicaLimits struct {
	all    []replicaLimit
	beside int           // inquiries under way: calls that belong to no job of the schedule
	latest bucket.Micros // the latest slot of a call; a rate that is added later must count it
}

// replicaLimit is one limit with its state.
type replicaLimit struct {
	bucket.Limit
	most     int64         // calls at once; 0: the limit is a rate
	interval bucket.Micros // of a rate
	burst    int64
	known    bool          // tat is set; at first a rate counts as used up, because a former process may have used it
	tat      bucket.Micros // when the rate allows a whole burst again
	last     bucket.Micros // the slot counted last, which may be given back
	before   bucket.Micros // tat before it counted that slot
	counted  bucket.Micros // the time at which that slot counts as used
	started  rateUse
}

// newReplicaLimits returns the limits of r. A rate that has not changed keeps its state.
func newReplicaLimits(r *bucket.Rules, former replicaLimits) replicaLimits {
	limits := replicaLimits{beside: former.beside, latest: former.latest}
	for i := range r.Replica {
		l := replicaLimit{Limit: r.Replica[i]}
		switch l.Kind() {
		case bucket.KindRate:
			each := r.Interval(*l.Rate)
			l.interval, l.burst = bucket.Micros((each.P+each.Q-1)/each.Q), r.Burst(*l.Rate)
		case bucket.KindInFlight:
			l.most = r.Lowered(l.InFlight)
		case bucket.KindQuota, bucket.KindBudget: // Rules.Validate refuses them
			continue
		}
		for _, was := range former.all {
			if l.Rate != nil && was.Rate != nil && was.Name == l.Name && was.interval == l.interval && was.burst == l.burst {
				l.known, l.tat, l.last, l.before, l.counted, l.started = was.known, was.tat, was.last, was.before, was.counted, was.started
			}
		}
		limits.all = append(limits.all, l)
	}
	return limits
}

// any reports whether there are such limits.
func (r *replicaLimits) any() bool { return len(r.all) > 0 }

// replicaPoll is how soon the schedule looks again at a full limit of calls at once if no call ends before.
const replicaPoll = 100 * time.Millisecond

// opens returns when all limits let one more call pass, and the name of the limit that opens last. The time is 0 if
// they let it pass now. running is how many calls are under way. asked is how many calls await the store's answer,
// which the rates do not count yet.
func (r *replicaLimits) opens(now bucket.Micros, running, asked int) (at bucket.Micros, limit string) {
	for i := range r.all {
		l := &r.all[i]
		until := bucket.Micros(0)
		switch {
		case l.most > 0:
			if int64(running+r.beside) >= l.most {
				until = now.Add(replicaPoll)
			}
		default:
			if !l.known {
				l.known, l.tat = true, max(now, r.latest)+l.interval*bucket.Micros(l.burst)
			}
			tat := l.tat
			if asked > 0 {
				tat = max(tat, now) + l.interval*bucket.Micros(asked)
			}
			until = tat - l.interval*bucket.Micros(l.burst-1)
		}
		if until > now && until > at {
			at, limit = until, l.Name
		}
	}
	return at, limit
}

// near returns one less than the number of calls that these limits let start within LongWait. running is how many calls
// are under way.
func (r *replicaLimits) near(now bucket.Micros, running int) float64 {
	n := float64(MaxStaged)
	for i := range r.all {
		l, here := &r.all[i], 0.0
		switch opens := l.tat - l.interval*bucket.Micros(l.burst-1); {
		case l.most > 0:
			here = float64(l.most - int64(running+r.beside) - 1)
		case l.known:
			here = float64(now.Add(LongWait)-max(opens, now-l.interval*bucket.Micros(l.burst))) / float64(l.interval)
		}
		n = min(n, max(here, 0))
	}
	return n
}

// after returns when these limits' rates should let a call start that has ahead calls before it. It returns 0 if there
// are no rates.
func (r *replicaLimits) after(ahead float64, from bucket.Micros) (at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 {
			opens := max(from, l.tat-l.interval*bucket.Micros(l.burst-1))
			at = max(at, opens+bucket.Micros(min(ahead*float64(l.interval), float64(Never/4))))
		}
	}
	return at
}

// take counts a call in the slot at. A slot before now counts as used now.
func (r *replicaLimits) take(at, now bucket.Micros) {
	r.latest = max(r.latest, at, now)
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 {
			l.last, l.before, l.counted = at, l.tat, max(at, now)
			l.tat = max(l.tat, l.counted) + l.interval
			l.started.correct(l.Rate, l.counted, l.counted, 1)
		}
	}
}

// giveBack undoes the last call of take if that call counted this slot. Earlier slots stay counted.
func (r *replicaLimits) giveBack(at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 && l.last == at && at != 0 {
			l.tat, l.last = l.before, 0
			l.started.correct(l.Rate, l.counted, l.counted, -1)
		}
	}
}

// uses returns how much of the limits this process uses. running is how many calls are under way.
func (r *replicaLimits) uses(rules *bucket.Rules, now bucket.Micros, running int) (uses []LimitUse) {
	for i := range r.all {
		l := &r.all[i]
		u := LimitUse{Limit: l.Name, Used: int64(running + r.beside), Count: l.most, Replica: true}
		if l.most == 0 {
			u.Used, u.Per, u.Count = l.started.sum(l.Rate, now), usedPer(l.Rate), mostUsed(l.Rate, rules.Lowered(l.Rate.Count))
		}
		uses = append(uses, u)
	}
	return uses
}

// named returns the limit of this name, nil if there is none.
func (r *replicaLimits) named(name string) *replicaLimit {
	i := slices.IndexFunc(r.all, func(l replicaLimit) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &r.all[i]
}

// onWay returns how many calls run or may start soon, plus the operations that hold slots. A call counts twice while it
// has started and its request has not left.
func (s *Schedule) onWay() int { return s.Pipe.calls + s.polling.held + s.Pipe.exit.leaving }

// mayAskReplica reports whether this replica's own limits let the schedule ask for one call. If a limit is used up, it
// shuts the gate until the limit opens.
func (s *step) mayAskReplica() bool {
	if !s.replica.any() {
		return true
	}
	if at, limit := s.replica.opens(s.now, s.onWay(), 0); at > s.now {
		if at > s.gate.opens {
			s.gate.shut(limit, at)
		}
		return false
	}
	return len(s.fx.Asks) == 0
}

// TakeReplica counts an inquiry in this replica's own limits and returns 0. until is the latest time of the inquiry's
// slot. If the limits do not let the inquiry pass, TakeReplica counts nothing. It then returns when they will, and the
// name of the limit that opens last. The caller must call EndReplica when the inquiry has ended or was not made. A call
// for which a job has asked the store goes first.
func (s *Schedule) TakeReplica(now, until bucket.Micros) (at bucket.Micros, limit string) {
	if at, limit = s.replica.opens(now, s.onWay(), s.store.rounds); at > now {
		return at, limit
	}
	s.replica.take(until, now)
	s.replica.beside++
	return 0, ""
}

// EndReplica ends an inquiry that TakeReplica counted with this until. sent says whether it was sent. EndReplica
// reports whether jobs may ask for slots again.
func (s *Schedule) EndReplica(until bucket.Micros, sent bool) (more bool) {
	s.replica.beside--
	if sent {
		return s.replicaFreed()
	}
	s.replica.giveBack(until)
	return s.replicaGaveBack()
}

// replicaFreed opens the gate if this replica's own limit of calls at once has shut it, because that limit may have room
// again. It reports whether the limit had shut it.
func (s *Schedule) replicaFreed() bool {
	l := s.replica.named(s.gate.by)
	if s.gate.opens == 0 || l == nil || l.most == 0 {
		return false
	}
	s.gate.opens = 0
	return true
}

// replicaGaveBack opens the gate if any of this replica's own limits has shut it, because a slot came back to them. It
// reports whether one of them had.
func (s *Schedule) replicaGaveBack() bool {
	if s.gate.opens == 0 || s.replica.named(s.gate.by) == nil {
		return false
	}
	s.gate.opens = 0
	return true
}
