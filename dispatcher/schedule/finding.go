package schedule

import (
	"time"

	"weir/bucket"
)

// Finding is what replicas tell each other about an api: what its answers said, and what its breaker does. All times
// are by this process's clock. The zero Finding says that nothing is known.
type Finding struct {
	At   bucket.Micros // when the Finding was made
	Held bucket.Micros // an answer asked for no call of the api before this time; 0: none did
	Why  string        // why the api is held
	// Turn counts how often the breaker has opened and closed. Of two Findings, the one with the greater Turn has the
	// breaker's later state.
	Turn   int64
	Until  bucket.Micros // the breaker stays open until this time; 0: it is closed
	Opened int           // how often in a row it opened without closing
	Denied bool          // the api's denial of weir's access opened it
	Reason string        // why it is open, as the call's outcome says
	Share  int64         // the part of the rate that pushback had left at the time At; 0: all of it
}

// Open reports whether the breaker is open.
func (f *Finding) Open() bool { return f.Until != 0 }

// Findings is the part of the holds that replicas share. This process tells the others what it finds out (Tell), and
// learns what they have found (Learn). What it learns only delays calls, except that another replica's answered probe
// closes the breaker. A breaker that opened because no connection could be made is not shared: other replicas may reach
// the api.
type Findings struct {
	holds  *Holds  // of which this is a part
	queues *Queues // whose queues may go on, or must not, after a Finding

	on     bool          // other replicas may call the api
	turn   int64         // the greatest Turn of the breaker that is known
	turned bool          // the breaker has turned here, and no stored Finding says so yet
	alone  bool          // the breaker opened because no connection could be made
	claim  bucket.Micros // since when this process may probe the api for all replicas; 0: it may not
	cutOff bool          // the other replicas cannot be told of a turn or a claim, so this process probes without a claim
	held   bucket.Micros // the longest hold that an answer to this process asked for
	shared bucket.Micros // the longest hold that the replicas share
	why    string
	unsaid bool // there may be something to tell

	replicas int // how many processes call the api, this one included; 0: only this one
}

// idleClaim is how long this process may keep a claim without a probe. It is not 0, because one step may not reach the
// job that will be the probe.
const idleClaim = 20 * time.Millisecond

// found notes that an answer to this process asked for a hold of the api.
func (c *Findings) found(until bucket.Micros, why string) {
	if c.on && until > c.held {
		c.held, c.why, c.unsaid = until, why, true
	}
}

// opens notes that a call has opened the breaker, or opened it again. sent says whether anything of the call was sent.
// former is the breaker before the call ended. If the breaker was open for all replicas, it stays open for all of them,
// even if nothing was sent.
func (c *Findings) opens(sent bool, former *breaker) {
	c.claim = 0
	if !sent && (former.closed() || c.alone) {
		c.alone = true
		return
	}
	c.alone, c.turned, c.unsaid = false, c.on, c.on
}

// closes notes that the breaker has closed.
func (c *Findings) closes() {
	c.claim = 0
	if !c.alone {
		c.turned, c.unsaid = c.on, c.on
	}
	c.alone = false
}

// mayProbe reports whether this process may make the probe, the call that tries the api while the breaker is open. It
// returns true if the breaker is closed.
func (c *Findings) mayProbe() bool {
	return c.holds.breaker.closed() || !c.on || c.alone || c.cutOff || c.claim != 0
}

// ProbeAlone lets this process probe without a claim until ProbeTogether is called. The caller calls ProbeAlone when it
// can store neither a turn of the breaker nor a claim. ProbeAlone returns false if the breaker is closed, or if this
// process could probe without a claim before.
func (c *Findings) ProbeAlone() bool {
	if c.holds.breaker.closed() || c.cutOff {
		return false
	}
	c.cutOff = true
	c.queues.touchAll()
	return true
}

// ProbeTogether makes the probe need a claim again. A probe whose call has begun goes on.
func (c *Findings) ProbeTogether() {
	if c.cutOff {
		c.cutOff = false
		c.LoseClaim()
	}
}

// HasUnsaid reports whether Tell may have something to say.
func (c *Findings) HasUnsaid() bool { return c.unsaid }

// AwaitsProbe returns the breaker's turn whose probe this process may claim, and the time from which the api may be
// probed. It returns 0 if the breaker is closed, if the other replicas do not know that it is open, or if this process
// has the claim.
func (c *Findings) AwaitsProbe() (turn int64, from bucket.Micros) {
	if c.holds.breaker.closed() || !c.on || c.alone || c.turned || c.claim != 0 {
		return 0, 0
	}
	return c.turn, c.holds.breaker.until
}

// HasClaim reports whether this process may probe for all replicas.
func (c *Findings) HasClaim() bool { return c.claim != 0 }

// Claim lets this process probe for all replicas, if the breaker still awaits the probe of this turn.
func (c *Findings) Claim(turn int64, now bucket.Micros) {
	if present, _ := c.AwaitsProbe(); turn != 0 && present == turn {
		c.claim = max(now, 1)
		c.queues.touchAll()
	}
}

// LoseClaim ends this process's claim. A probe whose call has begun goes on.
func (c *Findings) LoseClaim() {
	c.claim = 0
	c.holds.breaker.keepCalled()
	c.queues.touchAll()
}

// keepCalled drops the probe unless its call has begun.
func (b *breaker) keepCalled() {
	if b.probe != nil && b.probe.Phase != calling && b.probe.Phase != settling {
		b.probe = nil
	}
}

// endsClaim ends a claim that no job has used for idleClaim, and reports whether it did.
func (c *Findings) endsClaim(now bucket.Micros) bool {
	if c.claim == 0 || c.holds.breaker.probe != nil || now < c.claim.Add(idleClaim) {
		return false
	}
	c.claim = 0
	return true
}

// claimEnds returns when an unused claim ends, Never if there is none.
func (c *Findings) claimEnds() bucket.Micros {
	if c.claim == 0 || c.holds.breaker.probe != nil {
		return Never
	}
	return c.claim.Add(idleClaim)
}

// Tell returns the Finding that all replicas should know. known is the Finding that is stored. This process must have
// learned or told it before. more says whether f says more than known: the caller then stores f, and calls Told. If
// known says less than this process has learned before, the rest was lost, and f says it again.
func (c *Findings) Tell(known Finding, now bucket.Micros) (f Finding, more bool) {
	h := c.holds
	c.bound(&known, now)
	f = known
	f.At = now
	if c.held > max(now, known.Held.Add(tellLonger)) {
		f.Held, f.Why, more = c.held, c.why, true
	}
	if f.Turn = max(known.Turn, c.turn); c.turned {
		f.Turn++
	}
	if f.Turn > known.Turn {
		var b breaker
		if !c.alone {
			b = h.breaker
		}
		f.Until, f.Opened, f.Denied, f.Reason, more = b.until, b.opened, b.denied, b.why, true
	}
	h.governor.grow(h.policy.Retry.Adaptive, now)
	f.Share = c.shareOf(known, now)
	if own := c.leaves(h.governor.ceiling); own < f.Share-tellLower {
		f.Share, more = own, true
	}
	if f.Share == whole {
		f.Share = 0
	}
	c.unsaid = more
	return f, more
}

// leaves returns the share of the rate that a ceiling leaves under the present policy.
func (c *Findings) leaves(ceiling int64) int64 {
	a := c.holds.policy.Retry.Adaptive
	if a == nil || ceiling <= 0 {
		return whole
	}
	return max(min(ceiling, whole), whole*a.Floor/100, 1)
}

// Tell ignores a hold that is longer by no more than tellLonger, and a share that is lower by no more than tellLower.
const (
	tellLonger = 20 * time.Millisecond
	tellLower  = whole / 64
)

// shareOf returns the share of the rate that a Finding leaves now: whole if pushback does not lower the rate.
func (c *Findings) shareOf(f Finding, now bucket.Micros) int64 {
	a := c.holds.policy.Retry.Adaptive
	if a == nil || f.Share <= 0 {
		return whole
	}
	g := governor{ceiling: c.leaves(f.Share), grown: f.At}
	if g.grow(a, now); g.ceiling == 0 {
		return whole
	}
	return min(g.ceiling, whole)
}

// Told takes a Finding that Tell has returned and that is now stored.
func (c *Findings) Told(f Finding) {
	b := &c.holds.breaker
	c.ProbeTogether()
	c.shared = max(c.shared, f.Held)
	if c.turned && (f.Until != b.until || f.Opened != b.opened) {
		c.turn, c.unsaid = max(c.turn, f.Turn), true // it has turned again meanwhile
		return
	}
	if f.Turn > c.turn {
		c.turn, c.turned = f.Turn, false
		c.queues.touchAll() // a job may claim the probe now
	}
}

// Learn puts in force what another replica has found out. It returns the holds that begin and end. The holds that it
// learns last no longer than this process's own may.
func (c *Findings) Learn(f Finding, now bucket.Micros) (news []HoldChange) {
	h := c.holds
	c.bound(&f, now)
	c.shared = max(c.shared, f.Held)
	if f.Held > now {
		if f.Held > h.held && h.held <= now {
			news = append(news, HoldChange{Until: f.Held, Why: f.Why})
		}
		h.hold(nil, f.Held, f.Why)
	}
	if f.Turn > c.turn {
		c.turn = f.Turn
		if change, turned := c.follow(&f, now); turned {
			news = append(news, change)
		}
		c.queues.touchAll()
	}
	if share := c.shareOf(f, now); share < whole {
		h.governor.lowerTo(share, now)
	}
	return news
}

// bound shortens the holds of a Finding to the longest that this process's own holds may last, counted from f.At. Only
// a Finding that is damaged, or that weir has not written, has longer ones.
func (c *Findings) bound(f *Finding, now bucket.Micros) {
	most := min(f.At, now).Add(max(MostHold, c.holds.policy.Retry.Max, c.holds.policy.Breaker.Max))
	f.Held, f.Until = min(f.Held, most), min(f.Until, most)
}

// follow makes the breaker follow a Finding with a greater Turn. turned says whether the breaker opened or closed.
func (c *Findings) follow(f *Finding, now bucket.Micros) (change HoldChange, turned bool) {
	b := &c.holds.breaker
	switch {
	case f.Open() && (f.Denied || c.holds.policy.Breaker.Failures > 0):
		former := *b
		c.claim = 0
		// The Finding says more than what this process had learned, also if the process missed a closing in between.
		if b.until = max(f.Until, former.until, 1); !c.turned || f.Until >= former.until {
			b.why, b.denied, c.turned = f.Reason, f.Denied, false
		}
		b.opened, b.turned, b.failures, c.alone = max(f.Opened, former.opened), now, 0, false
		b.keepCalled()
		return HoldChange{Until: b.until, Why: b.reason()}, former.closed()
	case f.Open(), c.alone:
	case b.closed():
		b.turned, c.turned = max(b.turned, min(f.At, now)), false
	case !c.turned: // else this process has a later state, which the others learn next
		why := answersAgain(b.denied)
		b.close(now)
		c.claim = 0
		c.holds.governor.restart(now)
		return HoldChange{Why: why}, true
	}
	return HoldChange{}, false
}

// answersAgain returns why the breaker closes.
func answersAgain(denied bool) string {
	if denied {
		return "the api accepts weir's calls again"
	}
	return "the api answers again"
}

// lowerTo lowers the ceiling to a share of the rate.
func (g *governor) lowerTo(share int64, now bucket.Micros) {
	if g.ceiling == 0 || share < g.ceiling {
		g.ceiling, g.lowered, g.grown = share, now, now
	}
}

// Divide sets how many replicas call the api. While the api's pace is slower than the configured rate, each replica has
// an equal part of the slower pace.
func (c *Findings) Divide(replicas int) { c.replicas = replicas }

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
