package schedule

import (
	"weir/bucket"
)

// onDenial takes in that a call was denied. The first that is opens the breaker, and so does each probe, for longer. The calls that
// were under way meanwhile are put back like it. A call by former terms says nothing of the present ones.
func (s *Schedule) onDenial(j *Job, e CallEnd, f *Feedback) {
	retry, b, probe := &j.Policy.Retry, &s.breaker, s.breaker.probe == j
	s.breaker.letGo(j)
	j.denials++
	j.tripped = true
	f.NotBefore = max(e.Now, b.until)
	if j.Policy != s.policy {
		s.touchAll()
		return
	}
	if probe || b.closed() && e.Started >= b.turned {
		b.deny(retry, e)
		f.Denied = true
		f.News = append(f.News, HoldChange{Until: b.until, Why: b.why})
		s.touchAll()
	}
	f.NotBefore = max(e.Now, b.until)
	if n := j.denials - patientDenials; n > 0 {
		// Other jobs are to be the next probes: it may be the job after all.
		f.NotBefore = max(f.NotBefore.Add(probeTurn), e.Now.Add(Backoff(retry.Min, retry.Max, n, e.Jitter)))
	} else if b.closed() {
		f.NotBefore = e.Now.Add(Backoff(retry.Min, retry.Max, j.denials, e.Jitter)) // its denial is older than what closed the breaker
	}
}

// patientDenials is how often a job is denied and keeps its place before the others. A job that alone is denied would otherwise
// keep its api from being called for ever.
const patientDenials = 2

// deny opens the breaker, or opens it again, because the api denies weir.
func (b *breaker) deny(retry *Retry, e CallEnd) {
	if !b.denied {
		b.opened = 0
	}
	b.denied = true
	b.open(denialPace(retry), e.Now, e.Jitter)
	b.until = max(b.until, e.Now.Add(e.Hold.Wait))
	b.why = e.Detail + "; " + e.Mend
}

// denialPace is how long an api is held that denies weir: as long as a job waits that failed.
func denialPace(retry *Retry) BreakerPolicy {
	return BreakerPolicy{Failures: 1, Min: retry.Min, Max: retry.Max}
}

// DenyAgain takes up what a mark says that was stored before a restart, or by the owner before: the api denied weir, and was not to be
// called before until. It is tried with one call, also when that is past. What was stored before this process has found out for itself
// is old news.
func (s *Schedule) DenyAgain(until, stored bucket.Micros, why string) {
	b := &s.breaker
	if stored < max(b.turned, s.welcome) || b.denied && b.until >= until {
		return
	}
	*b = breaker{probe: b.probe, opened: max(b.opened, 1), until: max(until, 1), turned: stored, why: why, denied: true}
}

// EndDenial lets an api that denies weir be tried at once, because it is configured anew, its secrets are read anew, or an operator
// says so: a mended token need not wait. It is tried with one call all the same.
func (s *Schedule) EndDenial(now bucket.Micros) {
	if s.breaker.denied {
		s.TryNow(now)
	}
}

// Denied reports whether the api is not called because it denies weir.
func (s *Schedule) Denied() bool { return s.breaker.denied }
