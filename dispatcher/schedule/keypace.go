package schedule

import "weir/bucket"

// keyPace is the state of a key's own rate: up to when its slots are used, and when it may ask for the next. TAT
// decreases only when slots are given back, or under new rules. The store knows the pace, unless the pace is cold.
type keyPace struct {
	TAT      bucket.Micros // after the last grant that this process knows of, by our clock
	floor    bucket.Micros // the TAT that the ledger has, by the store's clock
	slipped  bucket.Micros // the TAT of a call that left late, from which to continue; 0 if none did
	askAt    bucket.Micros // the store said not to ask before then
	binds    string        // the limit that, by the store's last answer, refuses slots
	Noted    bucket.Micros // the TAT that the flight recorder noted for lost calls, 0 if none
	Orphaned int32         // calls of the previous owner that may still run: see Partition.Leftover
	cold     bool          // the next ask must carry TAT: the store may have forgotten it
	passed   bool          // the ask under way is stale: since it was sent, a slot was given back or a call left late
	LookedUp bool          // the ledger has been asked for the pace
	Unsure   bool          // a call may have run when its process died: the pace is not known
}

// GoOnFrom makes the queue continue its key's pace from a theoretical arrival time. The next ask reports it to the
// store.
func (p *keyPace) GoOnFrom(tat bucket.Micros) { p.TAT, p.cold = max(p.TAT, tat), true }

// Remind makes the queue's next ask tell a store on another machine what the ledger knows of the pace, in case that
// store has lost its latest state. Without a loss, such a store knows every slot that it granted. theirs is the
// ledger's TAT by the store's clock.
func (p *keyPace) Remind(theirs bucket.Micros) { p.floor, p.cold = theirs, true }

// slip notes that a granted call left late, at now. The calls behind it must not come too close to it.
func (p *keyPace) slip(g bucket.Grant, now bucket.Micros) { p.slipped = g.TAT - g.At + now }

// takeSlip makes the pace continue from the call that left late.
func (p *keyPace) takeSlip() {
	p.GoOnFrom(p.slipped)
	p.slipped = 0
}

// confirm applies a grant: the store knows the pace now.
func (p *keyPace) confirm(tat bucket.Micros) { p.TAT, p.cold = tat, false }

// refused notes the limit that refused the queue a slot. askAt is the time before which the queue must not ask again
// because of its own rate, 0 for none.
func (p *keyPace) refused(by string, askAt bucket.Micros) { p.binds, p.askAt = by, askAt }

// lower bounds the TAT by that of a full bucket under new rules. full is the latter by our clock, and theirs by the
// store's clock, 0 if the store's clock is not known. The queue may ask again at once.
func (p *keyPace) lower(full, theirs bucket.Micros) {
	p.TAT, p.slipped, p.askAt = min(p.TAT, full), min(p.slipped, full), 0
	if theirs != 0 {
		p.floor = min(p.floor, theirs)
	}
}

// untold returns the TAT that the store does not know yet; 0 if it knows the pace.
func (p *keyPace) untold() bucket.Micros {
	if !p.cold {
		return 0
	}
	return p.TAT
}
