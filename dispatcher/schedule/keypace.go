package schedule

import "weir/bucket"

// keyPace is the state of a key's own rate: up to when its slots are used, and when the next may be asked for. TAT
// decreases only when slots are given back, or under new rules. The store knows it, unless the pace is cold.
type keyPace struct {
	TAT      bucket.Micros // after the last grant that this process knows of, by our clock
	floor    bucket.Micros // the TAT that the ledger knows, by the store's clock
	slipped  bucket.Micros // the TAT from which to continue after a call left late; 0 if none did
	askAt    bucket.Micros // the store said not to ask before then
	binds    string        // the limit that binds, as the store said last
	Noted    bucket.Micros // TAT that the recorder noted for lost calls, 0 if none
	Orphaned int32         // calls of the previous owner that may still run: see Partition.Leftover
	cold     bool          // the next ask must carry TAT: the store may have forgotten it
	passed   bool          // the present ask is stale: a slot went back, or a call left late
	LookedUp bool          // the ledger has been asked for the pace
	Unsure   bool          // a call may have run when the dispatcher died: the pace is not known
}

// GoOnFrom makes the queue continue at its key's pace, from a theoretical arrival time that the next ask reports to the
// store.
func (p *keyPace) GoOnFrom(tat bucket.Micros) { p.TAT, p.cold = max(p.TAT, tat), true }

// Remind makes the queue's next ask tell a store on another machine what the ledger knows of the pace, in case that
// store lost its latest state. Otherwise such a store knows every slot that it granted. theirs is the ledger's TAT by
// the store's clock.
func (p *keyPace) Remind(theirs bucket.Micros) { p.floor, p.cold = theirs, true }

// slip notes that a granted call left late, at now. The calls behind it must not come too close to it.
func (p *keyPace) slip(g bucket.Grant, now bucket.Micros) { p.slipped = g.TAT - g.At + now }

// takeSlip makes the pace continue from a call that left late.
func (p *keyPace) takeSlip() {
	p.GoOnFrom(p.slipped)
	p.slipped = 0
}

// confirm applies a grant: the store knows the pace now.
func (p *keyPace) confirm(tat bucket.Micros) { p.TAT, p.cold = tat, false }

// refused notes the limit that refused the queue a slot, and the time before which the queue's own rate must not be
// asked again; 0 for none.
func (p *keyPace) refused(by string, askAt bucket.Micros) { p.binds, p.askAt = by, askAt }

// lower limits the TAT to that of a full bucket under new rules: full by our clock, and theirs by the store's clock, 0
// if that is not known. The rate may be asked again at once.
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
