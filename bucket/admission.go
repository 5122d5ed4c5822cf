package bucket

import (
	"fmt"
	"sync"
	"time"
)

// Admission limits say which jobs are accepted at all, before a job is queued. They protect weir and its producers from
// each other, not the api: accepting a few jobs too many costs no money. So they may estimate (sliding_window), accept
// more than the limit and report it (soft), or lend a key what other keys leave free (elastic). Each counts per key.
//
// A refused job does not count, whether this limit, another one or the full bucket behind them refuses it. Counting it,
// as some limiters do, locks a client out for as long as it retries. A job that is sent again under its id does not
// count either. If only the stream's answer shows that, the count is taken back then.
//
// In the worst window of a limit of N per P, token_bucket and leaky_bucket admit Burst + N. (They are the same: one
// counts what is left, the other what is owed.) fixed_window admits 2N around an edge. sliding_log admits exactly N.
// sliding_window admits just under 2N if the arrivals are contrived, and about N if they are even.

// AdmitVerdict is the answer of an admission limit to a job.
type AdmitVerdict string

// The verdicts. All but Refused accept the job.
const (
	Admitted AdmitVerdict = "admitted"
	OverSoft AdmitVerdict = "over_soft" // above the rate, within the soft percentage
	Borrowed AdmitVerdict = "borrowed"  // above the key's rate, out of what other keys left
	Refused  AdmitVerdict = "refused"
)

// Admittance is the answer to one job.
type Admittance struct {
	Verdict AdmitVerdict
	Retry   time.Duration // for Refused: after how long it would fit if no other job came; 0 if its cost never fits
	at      Micros        // when it was counted
}

// Admitter applies one Admission to all keys of an api. It is safe for concurrent use. It forgets a key that has had no
// job for one to two times length. For that it drops a whole generation of keys at once, without a sweep. A key whose
// jobs were all refused or taken back is not kept at all.
type Admitter struct {
	Admission Admission
	soft      int64 // hard and SoftPercent of it
	hard      int64
	interval  Interval
	length    Micros // of a generation: after that long a key's count is 0

	mu       sync.Mutex // guards what follows, and what is in it
	clock    Micros
	recent   map[string]*admitState
	older    map[string]*admitState
	turned   Micros // when the present generation began
	together windowCount
}

// admitState is the use of one key. The algorithm decides which field is in use.
type admitState struct {
	bucket gcra
	log    *slidingMeter
	window windowCount
}

// NewAdmitter returns an admitter that knows no key.
func NewAdmitter(a Admission) (*Admitter, error) {
	if err := a.Validate(); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	hard := a.Rate.Count
	if a.bucketed() {
		hard = a.Rate.Burst
	}
	x := &Admitter{
		Admission: a, hard: hard, soft: hard + hard/100*a.SoftPercent + hard%100*a.SoftPercent/100,
		interval: Interval{ceilMicros(a.Rate.Per), a.Rate.Count}.fit(2 * max(a.Rate.Burst, 1)),
		recent:   map[string]*admitState{}, older: map[string]*admitState{},
	}
	x.length = max(2*Micros(ceilMicros(a.Rate.Per)), x.interval.times(x.soft))
	return x, nil
}

// Admit judges a job of cost units (at least 1) at now. If the clock goes back, time stops until the clock has caught
// up.
func (x *Admitter) Admit(key string, now Micros, cost int64) Admittance {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.admitLocked(key, now, max(1, cost))
}

func (x *Admitter) admitLocked(key string, now Micros, cost int64) Admittance {
	x.clock = max(x.clock, now)
	now = x.clock
	s := x.stateLocked(key, now)
	if x.fitsLocked(s, now, cost, x.hard) <= now {
		x.countLocked(key, s, now, cost)
		return Admittance{Verdict: Admitted, at: now}
	}
	retry := x.fitsLocked(s, now, cost, x.soft)
	if retry <= now {
		x.countLocked(key, s, now, cost)
		return Admittance{Verdict: OverSoft, at: now}
	}
	if x.Admission.Elastic {
		keys := int64(len(x.recent) + len(x.older))
		if x.keptLocked(key) == nil {
			keys++
		}
		free := x.together.fits(now, Micros(ceilMicros(x.Admission.Rate.Per)), cost, x.Admission.Rate.Count*min(keys, maxCost/x.Admission.Rate.Count))
		if free <= now {
			// A borrowed job does not count against the key's own limit.
			x.together.add(now, Micros(ceilMicros(x.Admission.Rate.Per)), cost)
			x.keepLocked(key, s)
			return Admittance{Verdict: Borrowed, at: now}
		}
		retry = min(retry, free)
	}
	if cost > x.soft {
		return Admittance{Verdict: Refused}
	}
	return Admittance{Verdict: Refused, Retry: now.Until(retry)}
}

// TakeBack undoes what a job of that cost counted. It is for a job that was admitted here and then refused elsewhere.
func (x *Admitter) TakeBack(key string, admitted Admittance, cost int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	cost = max(1, cost)
	per := Micros(ceilMicros(x.Admission.Rate.Per))
	if x.Admission.Elastic {
		x.together.takeBack(admitted.at, per, cost)
	}
	s := x.keptLocked(key)
	if s == nil || admitted.Verdict == Refused {
		return
	}
	if admitted.Verdict != Borrowed {
		x.uncountLocked(s, admitted.at, cost)
	}
	if s.window.present == 0 && s.window.before == 0 && (s.log == nil || s.log.sum == 0) && s.bucket.idle(x.clock) {
		delete(x.recent, key)
		delete(x.older, key)
	}
}

// uncountLocked takes back what countLocked charged at a time.
func (x *Admitter) uncountLocked(s *admitState, at Micros, cost int64) {
	per := Micros(ceilMicros(x.Admission.Rate.Per))
	switch x.Admission.Algorithm {
	case FixedWindow, SlidingWindowCounter:
		s.window.takeBack(at, per, cost)
	case SlidingLog:
		if at+per > x.clock { // an older job does not count any more, and a new state does not know that
			s.log.giveBack(at, cost, 0)
		}
	default:
		s.bucket.untake(x.interval, cost)
	}
}

// keptLocked returns the state that is kept of a key, nil if there is none.
func (x *Admitter) keptLocked(key string) *admitState {
	if s := x.recent[key]; s != nil {
		return s
	}
	return x.older[key]
}

// keepLocked keeps the state of a key that is in use.
func (x *Admitter) keepLocked(key string, s *admitState) {
	delete(x.older, key)
	x.recent[key] = s
}

// stateLocked returns a key's state, new if none is kept. It first begins a new generation if the present one is over.
func (x *Admitter) stateLocked(key string, now Micros) *admitState {
	if now-x.turned >= x.length {
		x.older, x.recent = x.recent, map[string]*admitState{}
		if now-x.turned >= 2*x.length {
			x.older = map[string]*admitState{}
		}
		x.turned = now
	}
	if s := x.keptLocked(key); s != nil {
		return s
	}
	s := &admitState{}
	if x.Admission.Algorithm == SlidingLog {
		s.log = newSlidingMeter(Rules{}, Quota{Count: x.soft, Per: x.Admission.Rate.Per})
	}
	return s
}

// fitsLocked returns the first time, now or later, at which cost fits under limit.
func (x *Admitter) fitsLocked(s *admitState, now Micros, cost, limit int64) Micros {
	if cost > limit {
		return maxMicros
	}
	per := Micros(ceilMicros(x.Admission.Rate.Per))
	switch x.Admission.Algorithm {
	case FixedWindow:
		if s.window.turn(now, per); s.window.present+cost <= limit {
			return now
		}
		return s.window.start + per
	case SlidingWindowCounter:
		return s.window.fits(now, per, cost, limit)
	case SlidingLog:
		s.log.advance(now)
		s.log.count = limit
		return s.log.earliest(now, cost)
	default:
		return s.bucket.slot(now, x.interval, limit, cost)
	}
}

// countLocked charges an admitted job, and keeps the state of its key.
func (x *Admitter) countLocked(key string, s *admitState, now Micros, cost int64) {
	x.keepLocked(key, s)
	per := Micros(ceilMicros(x.Admission.Rate.Per))
	switch x.Admission.Algorithm {
	case FixedWindow, SlidingWindowCounter:
		s.window.add(now, per, cost)
	case SlidingLog:
		s.log.take(now, cost, 0)
	default:
		s.bucket.take(now, x.interval, cost)
	}
	if x.Admission.Elastic {
		x.together.add(now, per, cost)
	}
}

// windowCount counts the units that were admitted in the present window of the clock and in the window before.
type windowCount struct {
	start           Micros
	before, present int64
}

// turn moves on to the window that holds now. A window's first instant belongs to it.
func (w *windowCount) turn(now, per Micros) {
	start := now - now%per
	switch start {
	case w.start:
	case w.start + per:
		w.start, w.before, w.present = start, w.present, 0
	default:
		w.start, w.before, w.present = start, 0, 0
	}
}

func (w *windowCount) add(now, per Micros, cost int64) {
	w.turn(now, per)
	w.present += cost
}

func (w *windowCount) takeBack(at, per Micros, cost int64) {
	switch at - at%per {
	case w.start:
		w.present = max(0, w.present-cost)
	case w.start - per:
		w.before = max(0, w.before-cost)
	}
}

// fits returns the first time at which cost fits, as the sliding window counter counts; maxMicros if it never fits. The
// counter assumes that the
// former window was filled evenly, and counts only the part of it that lies within one period before now. In whole
// numbers: before*(per-elapsed) + (present+cost)*per <= limit*per.
func (w *windowCount) fits(now, per Micros, cost, limit int64) Micros {
	w.turn(now, per)
	if cost > limit { // and left might overflow
		return maxMicros
	}
	elapsed := now - w.start
	left := limit - w.present - cost
	if left >= 0 && mul(uint64(w.before), uint64(per-elapsed)).cmp(mul(uint64(left), uint64(per))) <= 0 {
		return now
	}
	if left >= 0 {
		return max(now, w.start+fade(w.before, left, per))
	}
	return w.start + per + fade(w.present, limit-cost, per)
}

// fade returns how far into a window at most left of the former window's units still count. before is their number at
// first.
func fade(before, left int64, per Micros) Micros {
	if before <= left {
		return 0
	}
	return per - Micros(float64(left)/float64(before)*float64(per))
}

// bucketed reports whether the algorithm is limited by the burst and not by the count.
func (a Admission) bucketed() bool { return a.Algorithm == TokenBucket || a.Algorithm == LeakyBucket }

// Validate returns an error if an admission limit is out of bounds.
func (a Admission) Validate() error {
	if err := a.Rate.Validate(); err != nil {
		return err
	}
	switch a.Algorithm {
	case TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter:
	default:
		return fmt.Errorf("algorithm %q is not token_bucket, leaky_bucket, fixed_window, sliding_log or sliding_window", a.Algorithm)
	}
	if a.SoftPercent < 0 || a.SoftPercent > 1000 {
		return fmt.Errorf("soft %d%% is not within 0%% to 1000%%", a.SoftPercent)
	}
	return nil
}
