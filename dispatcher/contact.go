package dispatcher

import (
	"context"
	"time"

	"weir/dispatcher/ownership"

	"golang.org/x/sync/errgroup"
)

// A replica that is cut off from an api, or from where its limits are counted, can do nothing with its partitions. Another one may. It
// leaves them to others when it is sure of both: that nothing is answered here, and that somebody else says of himself that he is answered.
// So an api that is down for all moves nothing. Partitions are given up in order: calls that run end first.
//
// It takes part again when a connection can be opened, the limits answer, and a time has passed, which doubles each time that it
// soon has to leave again: opening a connection does not prove that calls are answered, and partitions must not go to and fro.

// contact is what is known of one api's being reached from here. It is a plain value; the worker's lock guards it.
type contact struct {
	answered  time.Time // a call was, last
	opened    time.Time // a connection was, last, to find out
	silent    time.Time // since when no call was answered though some were made; zero: the last one was
	failed    int       // calls since then
	limitless time.Time // since when the limits do not answer; zero: they do

	cutOff   bool      // its partitions are others'
	changed  time.Time // when that changed last
	patience time.Duration
}

// Times of a contact.
const (
	contactLost    = 3 * time.Second  // without an answer until others are asked
	contactFails   = 3                // calls in that time at least
	contactFresh   = 15 * time.Second // how long an answer proves that the api is reached
	contactOpen    = 3 * time.Second  // how long a connection does, where no call failed
	contactRest    = 10 * time.Second // a replica that leaves stays away at least
	contactMost    = 10 * time.Minute // and at most, when it has to leave again and again
	contactSettles = 30 * time.Second // who was back for as long, and four timeouts, begins with the least again
)

// called takes in how a call ended.
func (c *contact) called(answered bool, now time.Time) {
	switch {
	case answered:
		c.answered, c.silent, c.failed = now, time.Time{}, 0
	case c.silent.IsZero():
		c.silent, c.failed = now, 1
	default:
		c.failed++
	}
}

// limits takes in whether the limits answer.
func (c *contact) limits(err error, now time.Time) {
	switch {
	case err == nil:
		c.limitless = time.Time{}
	case c.limitless.IsZero():
		c.limitless = now
	}
}

// lost reports whether nothing is answered here.
func (c *contact) lost(now time.Time) bool {
	return !c.limitless.IsZero() && now.Sub(c.limitless) >= contactLost ||
		!c.silent.IsZero() && c.failed >= contactFails && now.Sub(c.silent) >= contactLost
}

// reaches reports whether calls would be answered that others cannot make.
func (c *contact) reaches(now time.Time) bool {
	return !c.cutOff && c.silent.IsZero() && c.limitless.IsZero() &&
		(now.Sub(c.answered) < contactFresh || now.Sub(c.opened) < contactOpen)
}

// judge decides whether the partitions are left to others, and reports whether that has changed.
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
func (h host) Contact(others func(api string) ownership.Others) (told ownership.Contact) {
	now := time.Now()
	for _, w := range h.d.workersNow() {
		o := others(w.name)
		w.mu.Lock()
		c := &w.contact
		if c.judge(o, w.terms.api.Timeout, now) {
			w.tellContact(c.cutOff)
		}
		w.probes.Store(c.cutOff || o.Seek && !c.lost(now)) // where all have lost it nobody knocks
		if c.cutOff {
			told.CutOff = append(told.CutOff, w.name)
		}
		if c.cutOff || c.lost(now) {
			told.Seeks = append(told.Seeks, w.name)
		} else if c.reaches(now) {
			told.Reaches = append(told.Reaches, w.name)
		}
		w.mu.Unlock()
	}
	return told
}

// tellContact is called with the lock held.
func (w *apiWorker) tellContact(cutOff bool) {
	if cutOff {
		w.log.Warn("this replica does not reach the api, or where its limits are counted, and another one does: it leaves its partitions to others")
		return
	}
	w.s.TryNow(w.now())
	w.wakeUp()
	w.log.Info("this replica takes its part of the api's partitions again", "wait", w.contact.patience)
}

// How often a connection is opened to find out whether an api is reached, where that is asked for, and how long one may take.
const (
	probeEvery = time.Second
	probeWait  = 2 * time.Second
)

// probeContacts opens connections, where somebody must know whether apis are reached, until ctx ends.
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
	w.mu.Lock()
	conns := w.terms.call.Conns
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	if conns.Probe(ctx) == nil {
		w.mu.Lock()
		w.contact.opened = time.Now()
		w.mu.Unlock()
	}
}
