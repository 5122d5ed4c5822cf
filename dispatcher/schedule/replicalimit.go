package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// replicaLimits holds the limits that each replica has for itself (Rules.Replica). They need no store: this process alone
// makes the calls that they count. A round of asks has one call while there are such limits. So the call is within all
// limits or is not made: these limits let it pass before the store is asked, the store grants or refuses the slot for
// all other limits in one step, and what is refused, given back or not sent was not counted here or is given back.
type replicaLimits struct {
	all    []replicaLimit
	beside int           // calls that are made beside the jobs: inquiries
	latest bucket.Micros // the latest slot of a call, which a rate that becomes known later must count
}

// replicaLimit is one limit with its state.
type replicaLimit struct {
	bucket.Limit
	most     int64         // calls at once; 0: it is a rate
	interval bucket.Micros // of a rate
	burst    int64
	known    bool          // tat is known; a rate counts as used up at first, because a former process may have used it
	tat      bucket.Micros // when the rate's bucket is empty again
	last     bucket.Micros // the slot counted last, which may be given back
	before   bucket.Micros // tat before that
	counted  bucket.Micros // when that slot counts as used
	started  rateUse
}

// newReplicaLimits returns the limits of rules. A rate that has not changed keeps its state.
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

// replicaPoll is when a limit of calls at once is looked at again if no end of a call reports that it has room.
const replicaPoll = 100 * time.Millisecond

// opens returns when all limits let one more call pass besides the running ones, and the limit that opens last. The time
// is 0 if they do now. asked calls are asked for at the store: the rates count them only when they are granted.
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

// near returns how many calls these limits let start within LongWait, less one. running calls are under way.
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

// after returns when a call should start by these limits' rates, with so many calls before it.
func (r *replicaLimits) after(ahead float64, from bucket.Micros) (at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 {
			opens := max(from, l.tat-l.interval*bucket.Micros(l.burst-1))
			at = max(at, opens+bucket.Micros(min(ahead*float64(l.interval), float64(Never/4))))
		}
	}
	return at
}

// take counts a call at now or later, in the slot at.
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

// giveBack takes back what the slot counted last took, if it is at. An earlier slot is lost.
func (r *replicaLimits) giveBack(at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 && l.last == at && at != 0 {
			l.tat, l.last = l.before, 0
			l.started.correct(l.Rate, l.counted, l.counted, -1)
		}
	}
}

// uses returns how much of the limits this process uses, while so many calls run.
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

// onWay returns how many calls run, or may start soon, with the operations that hold their slots. A call counts twice
// from its start until it has left.
func (s *Schedule) onWay() int { return s.Pipe.calls + s.polling.held + s.Pipe.exit.leaving }

// mayAskReplica reports whether this replica's own limits let one call be asked for. If not, it shuts the gate until they
// may.
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

// TakeReplica counts a call beside the jobs for this replica's own limits, whose slot is at until at most, and returns 0.
// If they do not let it pass, it counts nothing and returns when they may, with the limit. The caller must call
// EndReplica when the call has ended, or was not made. The call for which a job asks the store meanwhile counts first.
func (s *Schedule) TakeReplica(now, until bucket.Micros) (at bucket.Micros, limit string) {
	if at, limit = s.replica.opens(now, s.onWay(), s.store.rounds); at > now {
		return at, limit
	}
	s.replica.take(until, now)
	s.replica.beside++
	return 0, ""
}

// EndReplica ends a call that TakeReplica counted with this until. sent says whether it was sent. EndReplica reports
// whether jobs may ask for slots again.
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
