package schedule

import (
	"math"
	"time"

	"weir/bucket"
)

// breaker stops the calls of an api that keep failing. Such calls use up attempts, and on an api that is not idempotent
// they leave jobs in an unknown state. While the breaker is open, no call is made. Then one call is made, the probe. If
// it fails, the breaker opens again, for longer; otherwise the breaker closes. The zero breaker is closed.
//
// A failure is a call without an answer, or one answered with a fault of the api's own. Pushback is not a
// failure.
type breaker struct {
	failures int           // in a row, counted while it is closed
	opened   int           // how often in a row it has opened without closing
	until    bucket.Micros // until when it stays open; 0: it is closed
	turned   bucket.Micros // when it opened or closed last; ends of calls that started before do not count
	why      string        // the failure that opened it
	denied   bool          // a denial of weir opened it, not failures
	probe    *Job          // the one call that may be made while it is not closed
}

// reason returns why the breaker is open.
func (b *breaker) reason() string {
	if b.denied {
		return b.why
	}
	return "its calls keep failing: " + b.why
}

// trying returns the reason for the probe, as operators read it.
func (b *breaker) trying() string {
	if b.denied {
		return "one call tries whether the api accepts weir again: " + b.why
	}
	return "one call tries whether the api answers again"
}

func (b *breaker) closed() bool { return b.until == 0 }

// halfOpen reports whether one call may be made to see whether the api works again.
func (b *breaker) halfOpen(now bucket.Micros) bool { return b.until != 0 && b.until <= now }

// hasTried reports whether a job's call failed since the breaker opened. A probe costs an attempt, so the next
// probe should be another job, if there is one.
func (b *breaker) hasTried(j *Job) bool { return j != nil && j.tripped && !b.closed() }

// yields reports whether a job lets other callable jobs go first because its call failed since the breaker opened. It
// returns true for a job only once each time the breaker opens.
func (b *breaker) yields(j *Job) bool {
	if !b.hasTried(j) || j.yielded == b.opened {
		return false
	}
	j.yielded = b.opened
	return true
}

// mayCall reports whether the breaker lets a job be called.
func (b *breaker) mayCall(j *Job) bool { return b.closed() || b.probe == j }

// try makes a job the probe when the job is made ready, unless the breaker is closed.
func (b *breaker) try(j *Job) {
	if !b.closed() {
		b.probe = j
	}
}

// letGo clears the probe if j is the probe, because j is not called now.
func (b *breaker) letGo(j *Job) {
	if b.probe == j {
		b.probe = nil
	}
}

// failed counts a failed call that is not the probe, and reports whether that opened the breaker. jitter is from
// 0 to 1.
func (b *breaker) failed(o BreakerPolicy, started, now bucket.Micros, jitter float64) (opened bool) {
	if !b.closed() || o.Failures == 0 || started < b.turned {
		return false
	}
	if b.failures++; b.failures < o.Failures {
		return false
	}
	b.open(o, now, jitter)
	return true
}

// worked resets the count of failures after an answered call that is not the probe.
func (b *breaker) worked(started bucket.Micros) {
	if b.closed() && started >= b.turned {
		b.failures = 0
	}
}

// open opens the breaker, or opens it again after a failed probe. jitter is from 0 to 1.
func (b *breaker) open(o BreakerPolicy, now bucket.Micros, jitter float64) {
	b.opened = min(b.opened+1, 60)
	b.until, b.turned, b.failures = now.Add(max(openFor(o, b.opened, jitter), time.Microsecond)), now, 0
}

// openFor returns how long the breaker stays open when it opens the n-th time in a row. The longest such time doubles
// with n. openFor draws between three quarters of it and the whole, so that replicas do not probe together.
func openFor(o BreakerPolicy, n int, jitter float64) time.Duration {
	d := math.Min(float64(o.Min)*math.Pow(2, float64(n-1)), float64(o.Max))
	return time.Duration(d - d/4*jitter)
}

// close closes the breaker after an answered probe.
func (b *breaker) close(now bucket.Micros) { *b = breaker{turned: now} }

// BreakerPolicy says when the breaker stops the calls of an api.
type BreakerPolicy struct {
	Failures int           // failures in a row that open the breaker; 0: none do
	Min, Max time.Duration // bounds of the time that the breaker stays open, which doubles each time in a row
}
