package schedule

import "weir/bucket"

// onDenial handles a denied call. The first denial opens the breaker, and each denied probe opens it again, for longer.
// If other calls that ran meanwhile are denied too, their jobs only rest again. A call that was made under a former
// policy does not open the breaker. onDenial returns true if the schedule must look at every queue.
func (h *Holds) onDenial(j *Job, e CallEnd, present *Policy, f *Feedback) (changed bool) {
	retry, b, probe := &j.Policy.Retry, &h.breaker, h.breaker.probe == j
	b.letGo(j)
	j.denials++
	j.tripped = true
	if j.Policy != present {
		f.NotBefore = max(e.Now, b.until)
		return true
	}
	if changed = probe || b.closed() && e.Started >= b.turned; changed {
		h.common.opens(e.Sent, b)
		b.deny(retry, e)
		f.Denied = true
		f.News = append(f.News, HoldChange{Until: b.until, Why: b.why})
	}
	f.NotBefore = max(e.Now, b.until)
	if n := j.denials - patientDenials; n > 0 {
		// Other jobs must be the next probes: the fault may be this job's after all.
		f.NotBefore = max(f.NotBefore.Add(probeTurn), e.Now.Add(Backoff(retry.Min, retry.Max, n, e.Jitter)))
	} else if b.closed() {
		// The call began before the breaker closed.
		f.NotBefore = e.Now.Add(Backoff(retry.Min, retry.Max, j.denials, e.Jitter))
	}
	return changed
}

// patientDenials is how many of a job's calls the api may deny before other jobs are tried first. Without this bound, a
// single job that the api always denies would keep the calls of the api stopped forever.
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

// denialPace returns how long the breaker stays open after denials: as long as a failed job waits for its retry.
func denialPace(retry *Retry) BreakerPolicy {
	return BreakerPolicy{Failures: 1, Min: retry.Min, Max: retry.Max}
}

// DenyAgain restores a denial from a stored mark: this process stored it before a restart, or a former owner did. The
// mark says that the api denied weir and must not be called before until. Then one call tries the api, even if until
// has passed already. DenyAgain ignores a mark that is older than this process's own findings. It also ignores a mark
// while the replicas share a denial: they know the api's state, and the mark's time may come from a wrong clock. For
// the same reason, if other replicas may call the api, the denial ends at most Retry.Max from now.
func (c *Findings) DenyAgain(until, stored, now bucket.Micros, why string) {
	b := &c.holds.breaker
	if b.denied && c.on && c.turn != 0 && !c.turned && !c.alone {
		return
	}
	if c.on {
		until = min(until, now.Add(c.holds.policy.Retry.Max))
	}
	if stored < max(b.turned, c.holds.welcome) || b.denied && b.until >= until {
		return
	}
	c.opens(true, b)
	*b = breaker{probe: b.probe, opened: max(b.opened, 1), until: max(until, 1), turned: stored, why: why, denied: true}
}
