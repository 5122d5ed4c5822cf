package limits

import (
	"slices"
	"time"

	"weir/bucket"
)

// Replica holds the limits that each replica has for itself (Rules.Replica). They need no store, because they
// count only calls of this process.
//
// While there are such limits, each round of asks has only one call. So a call is within all limits, or is not made: it
// must pass these limits before the schedule asks the store, and the store grants or refuses its slot for all other
// limits in one step. These limits count a call when the store grants its slot. If the call gives the slot back, they
// take it back too.
type Replica struct {
	all    []own
	beside int           // inquiries under way: calls that belong to no job of the schedule
	latest bucket.Micros // the latest slot of a call; a rate that is added later must count it
}

// own is one limit with its state.
type own struct {
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

// NewReplica returns the limits of r. A rate that has not changed keeps its state.
func NewReplica(r *bucket.Rules, former Replica) Replica {
	limits := Replica{beside: former.beside, latest: former.latest}
	for i := range r.Replica {
		l := own{Limit: r.Replica[i]}
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

// Any reports whether there are such limits.
func (r *Replica) Any() bool { return len(r.all) > 0 }

// replicaPoll is how soon the schedule looks again at a full limit of calls at once if no call ends before.
const replicaPoll = 100 * time.Millisecond

// Opens returns when all limits let one more call pass, and the name of the limit that opens last. The time is 0 if
// they let it pass now. running is how many calls are under way. asked is how many calls await the store's answer,
// which the rates do not count yet.
func (r *Replica) Opens(now bucket.Micros, running, asked int) (at bucket.Micros, limit string) {
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

// Near returns one less than the number of calls that these limits let start within LongWait. running is how many calls
// are under way.
func (r *Replica) Near(now bucket.Micros, running int) float64 {
	n := float64(Plenty)
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

// After returns when these limits' rates should let a call start that has ahead calls before it. It returns 0 if there
// are no rates.
func (r *Replica) After(ahead float64, from bucket.Micros) (at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 {
			opens := max(from, l.tat-l.interval*bucket.Micros(l.burst-1))
			at = max(at, opens+bucket.Micros(min(ahead*float64(l.interval), float64(bucket.Never/4))))
		}
	}
	return at
}

// Take counts a call in the slot at. A slot before now counts as used now.
func (r *Replica) Take(at, now bucket.Micros) {
	r.latest = max(r.latest, at, now)
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 {
			l.last, l.before, l.counted = at, l.tat, max(at, now)
			l.tat = max(l.tat, l.counted) + l.interval
			l.started.correct(l.Rate, l.counted, l.counted, 1)
		}
	}
}

// GiveBack undoes the last Take if that Take counted this slot. Earlier slots stay counted.
func (r *Replica) GiveBack(at bucket.Micros) {
	for i := range r.all {
		if l := &r.all[i]; l.most == 0 && l.last == at && at != 0 {
			l.tat, l.last = l.before, 0
			l.started.correct(l.Rate, l.counted, l.counted, -1)
		}
	}
}

// Uses returns how much of the limits this process uses. running is how many calls are under way.
func (r *Replica) Uses(rules *bucket.Rules, now bucket.Micros, running int) (uses []Use) {
	for i := range r.all {
		l := &r.all[i]
		u := Use{Limit: l.Name, Used: int64(running + r.beside), Count: l.most, Replica: true}
		if l.most == 0 {
			u.Used, u.Per, u.Count = l.started.sum(l.Rate, now), usedPer(l.Rate), mostUsed(l.Rate, rules.Lowered(l.Rate.Count))
		}
		uses = append(uses, u)
	}
	return uses
}

// Has reports whether there is a limit of this name. inFlight says that it limits calls at once.
func (r *Replica) Has(name string) (is, inFlight bool) {
	i := slices.IndexFunc(r.all, func(l own) bool { return l.Name == name })
	return i >= 0, i >= 0 && r.all[i].most > 0
}

// Begin counts an inquiry that may be sent until a time: a call that belongs to no job of the schedule.
func (r *Replica) Begin(until, now bucket.Micros) {
	r.Take(until, now)
	r.beside++
}

// End ends an inquiry that Begin counted. sent says whether it was sent.
func (r *Replica) End(until bucket.Micros, sent bool) {
	if r.beside--; !sent {
		r.GiveBack(until)
	}
}
