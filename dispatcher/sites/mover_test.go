package sites

import (
	"context"
	"errors"
	"slices"
	"time"
)

// mover is one move under way: a coroutine that the world resumes when an answer, or the end of a wait, has come.
type mover struct {
	w      *world
	resume func() (struct{}, bool)
	end    func()
	yield  func(struct{}) bool
	dead   bool
	slow   bool             // it may sleep before a claim
	claims map[*site]uint64 // the revisions of its claims
}

func (m *mover) goOn() {
	if !m.dead {
		m.resume()
	}
}

// wait lets time pass for the mover.
func (m *mover) wait(d time.Duration) error {
	m.w.after(d, m.goOn)
	if !m.yield(struct{}{}) || m.dead {
		m.dead = true
		return errDied
	}
	return nil
}

// ask sends a request to a site and waits for its answer. What the site does is done when the request arrives, which
// may be long after the mover has given up or died.
func (m *mover) ask(s *site, do func() error) error {
	w := m.w
	delay, timeout := time.Millisecond+w.upTo(80*time.Millisecond), 2*time.Second
	if w.rnd.IntN(100) == 0 {
		delay = w.upTo(20 * time.Second)
	}
	done, answered := error(nil), false
	waiting := true
	w.after(delay, func() {
		if s.cut[m] || w.rnd.IntN(250) == 0 {
			return
		}
		err := do()
		w.after(time.Millisecond+w.upTo(80*time.Millisecond), func() {
			if s.cut[m] || !waiting || w.rnd.IntN(250) == 0 {
				return
			}
			waiting, answered, done = false, true, err
			m.goOn()
		})
	})
	w.after(timeout, func() {
		if waiting {
			waiting = false
			m.goOn()
		}
	})
	if !m.yield(struct{}{}) || m.dead {
		waiting, m.dead = false, true
		return errDied
	}
	if !answered {
		return errNoLink
	}
	return done
}

// link is a site as a mover reaches it.
type link struct {
	m *mover
	*site
}

// Claim implements Site.
func (l link) Claim(context.Context) (c Claim, err error) {
	if l.m.slow && l.w.rnd.IntN(2) == 0 { // it is stopped for a while
		if err := l.m.wait(l.w.upTo(30 * time.Second)); err != nil {
			return Claim{}, err
		}
	}
	claimed := uint64(0)
	err = l.m.ask(l.site, func() error {
		if l.w.plant != claimsNothing {
			l.revision++
			if l.followed == l.revision-1 {
				l.followed++ // the share did not change
			}
			l.claimed, claimed = l.revision, l.revision
		}
		c = Claim{Share: l.share, Sites: []string{l.name}, Revision: l.revision}
		return nil
	})
	if err != nil && l.w.plant == skipsUnreachable && !l.m.dead {
		return Claim{Share: 0, Revision: 0}, nil
	}
	l.m.claims[l.site] = claimed
	return c, err
}

// Confirm implements Site.
func (l link) Confirm(_ context.Context, c Claim) error {
	if l.w.plant == believesInSilence || l.w.plant == skipsUnreachable && c.Revision == 0 {
		return nil
	}
	return l.m.ask(l.site, func() error {
		mistaken := slices.Contains([]mistake{claimsNothing, claimsAfterwards, setsAnyway}, l.w.plant)
		if !mistaken && (l.claimed != l.m.claims[l.site] || l.share > c.Share) { // else it would find what these cause
			return ErrOvertaken
		}
		return nil
	})
}

// Check implements Site.
func (l link) Check(_ Claim, percent int64) error {
	_, err := l.w.rules(percent)
	return err
}

// Set implements Site.
func (l link) Set(_ context.Context, c Claim, percent int64) (Claim, error) {
	err := l.m.ask(l.site, func() error {
		if l.revision != c.Revision && l.w.plant != setsAnyway {
			return ErrOvertaken
		}
		l.revision++
		l.share = percent
		late := l.w.upTo(following)
		if l.w.rnd.IntN(5) == 0 {
			late = l.w.upTo(20 * following)
		}
		l.w.after(late, l.follow)
		return nil
	})
	if l.w.plant == believesInSilence && errors.Is(err, errNoLink) {
		err = nil
	}
	next := c
	next.Revision, next.Share = c.Revision+1, percent
	return next, err
}

// Await implements Site.
func (l link) Await(_ context.Context, c Claim) error {
	rules, plant := l.w.account, l.w.plant
	if plant == skipsUnreachable && c.Revision == 0 {
		return nil
	}
	rules.Jitter = jitter
	passes := rules.PassedAfter(l.w.whole, ahead)
	for since := int64(-1); ; {
		inForce, over := false, false
		err := l.m.ask(l.site, func() error {
			inForce, over = l.followed >= c.Revision, l.over()
			return nil
		})
		switch {
		case plant == believesInSilence && errors.Is(err, errNoLink), plant == awaitsNothing:
			return nil
		case err != nil && !errors.Is(err, errNoLink):
			return err
		case err != nil: // it asks again
			if l.w.rnd.IntN(5) == 0 {
				return err
			}
		case (inForce || plant == awaitsStored) && since < 0:
			since = l.w.now
		}
		inForce = inForce || plant == awaitsStored
		passed := since >= 0 && l.w.now-since >= passes.Microseconds() || plant == ignoresWindows
		if over = over && plant != ignoresUse; err == nil && inForce && passed && !over {
			return nil
		}
		if err := l.m.wait(50*time.Millisecond + l.w.upTo(250*time.Millisecond)); err != nil {
			return err
		}
	}
}
