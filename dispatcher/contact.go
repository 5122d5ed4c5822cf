package dispatcher

import (
	"context"
	"time"

	"weir/dispatcher/ownership"

	"golang.org/x/sync/errgroup"
)

// A replica that is cut off from an api, or from the store of its limits, can do nothing with the api's partitions, but
// another replica may. It leaves them to other replicas when two things are certain: it gets no answers, and another
// replica reports that it gets some. So if an api is down for all replicas, no partition moves. The replica closes its
// partitions in order, so that running calls end first.
//
// The replica takes part again when a connection can be opened, the limits answer, and it has stayed away for a certain
// time. This time doubles if the replica has to leave again soon: an open connection does not prove that calls are
// answered, and partitions must not move back and forth.

// contact is what this replica knows of its contact with one api. It is a plain value; the lane's lock guards it.
type contact struct {
	answered  time.Time // when a call was last answered
	opened    time.Time // when a probe last opened a connection
	silent    time.Time // when the first call after the last answered one failed; zero if there is none
	failed    int       // calls that failed from silent on
	limitless time.Time // since when the limits do not answer; zero if they do

	cutOff   bool      // this replica leaves the partitions to others
	changed  time.Time // when cutOff changed last
	patience time.Duration
}

// Times of a contact.
const (
	contactLost  = 3 * time.Second  // time without an answer until contact counts as lost
	contactFails = 3                // least number of failed calls in that time
	contactFresh = 15 * time.Second // how long an answer proves that the api can be reached
	contactOpen  = 3 * time.Second  // how long an opened connection proves it, if no call failed
	contactRest  = 10 * time.Second // least time that a replica stays away
	contactMost  = 10 * time.Minute // longest time, if it has to leave again and again
	// How long a replica must have been back, in addition to four timeouts, so that its next absence is only
	// contactRest again.
	contactSettles = 30 * time.Second
)

// note records whether a call was answered.
func (c *contact) note(answered bool, now time.Time) {
	switch {
	case answered:
		c.answered, c.silent, c.failed = now, time.Time{}, 0
	case c.silent.IsZero():
		c.silent, c.failed = now, 1
	default:
		c.failed++
	}
}

// limits notes whether the limits answer: err is nil if they do.
func (c *contact) limits(err error, now time.Time) {
	switch {
	case err == nil:
		c.limitless = time.Time{}
	case c.limitless.IsZero():
		c.limitless = now
	}
}

// lost reports whether this replica gets no answers.
func (c *contact) lost(now time.Time) bool {
	return !c.limitless.IsZero() && now.Sub(c.limitless) >= contactLost ||
		!c.silent.IsZero() && c.failed >= contactFails && now.Sub(c.silent) >= contactLost
}

// reaches reports whether this replica gets answers, so that it can make calls for replicas that get none.
func (c *contact) reaches(now time.Time) bool {
	return !c.cutOff && c.silent.IsZero() && c.limitless.IsZero() &&
		(now.Sub(c.answered) < contactFresh || now.Sub(c.opened) < contactOpen)
}

// judge decides whether this replica leaves the partitions to others or takes part, and reports whether that has
// changed.
func (c *contact) judge(others ownership.Others, timeout time.Duration, now time.Time) (changed bool) {
	switch {
	case !c.cutOff && c.lost(now) && others.Reach:
		if c.patience *= 2; c.patience == 0 || now.Sub(c.changed) > contactSettles+4*timeout {
			c.patience = contactRest
		}
		c.patience = min(c.patience, contactMost)
	case c.cutOff && !others.Stay:
	case c.cutOff && now.Sub(c.changed) >= c.patience && c.limitless.IsZero() && now.Sub(c.opened) < contactOpen:
	default:
		return false
	}
	c.cutOff, c.changed = !c.cutOff, now
	c.silent, c.failed = time.Time{}, 0
	return true
}

// Contact implements ownership.Host.
func (h host) Contact(others func(api string) ownership.Others) (apis ownership.Contact) {
	now := time.Now()
	for _, w := range h.d.workersNow() {
		o := others(w.Name)
		w.Mu.Lock()
		c := &w.contact
		if c.judge(o, w.Terms.API.Timeout, now) {
			w.tellContact(c.cutOff)
		}
		w.probes.Store(c.cutOff || o.Seek && !c.lost(now)) // a replica without contact does not probe for others
		if c.cutOff {
			apis.CutOff = append(apis.CutOff, w.Name)
		}
		if c.cutOff || c.lost(now) {
			apis.Seeks = append(apis.Seeks, w.Name)
		} else if c.reaches(now) {
			apis.Reaches = append(apis.Reaches, w.Name)
		}
		w.Mu.Unlock()
	}
	return apis
}

// tellContact logs that the replica leaves or comes back. The caller must hold the lane's lock.
func (w *apiWorker) tellContact(cutOff bool) {
	if cutOff {
		w.Log.Warn("this replica cannot reach the api or its limiter, and another replica can: it gives up the api's partitions")
		return
	}
	w.Sched.Holds.TryNow(w.Now())
	w.WakeUp()
	w.Log.Info("this replica takes its share of the api's partitions again", "wait", w.contact.patience)
}

// Times of probes. probeEvery is how often a probe opens a connection to find out whether an api can be reached.
// probeWait is how long that may take.
const (
	probeEvery = time.Second
	probeWait  = 2 * time.Second
)

// probeContacts opens connections to apis whose contact must be known, until ctx ends.
func (d *Dispatcher) probeContacts(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var probing errgroup.Group
		for _, w := range d.workersNow() {
			if w.probes.Load() {
				probing.Go(func() error { w.probe(ctx); return nil })
			}
		}
		_ = probing.Wait() // none fails
	}
}

func (w *apiWorker) probe(ctx context.Context) {
	w.Mu.Lock()
	conns := w.Terms.Call.Conns
	w.Mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	if conns.Probe(ctx) == nil {
		w.Mu.Lock()
		w.contact.opened = time.Now()
		w.Mu.Unlock()
	}
}
