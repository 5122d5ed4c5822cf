package schedule

import "weir/bucket"

// Partition is one tenure of a partition as the schedule has it: taken over again it is another one.
type Partition struct {
	Of       any           // the shell's own; the schedule does not look at it
	Open     bool          // calls of those queues may start that have been read far enough
	Stalled  bool          // too much that is finished is not deleted yet
	Reading  bool          // not all that was in it at the takeover is read
	Leftover bucket.Micros // until when calls of an owner that did not give the partition up may still run; 0 if none do

	newest uint64 // the last job that was pushed

	// deadlines are those of its waiting jobs that have one: some 40 bytes each.
	deadlines map[uint64]bucket.Micros
}

// Expect notes the deadline of a waiting job: it may pass while the job cannot be called, and so is not loaded.
func (p *Partition) Expect(seq uint64, at bucket.Micros) {
	if p.deadlines == nil {
		p.deadlines = map[uint64]bucket.Micros{}
	}
	p.deadlines[seq] = at
}

// takeDeadline is the deadline of a job that waits no longer, 0 for none.
func (p *Partition) takeDeadline(seq uint64) bucket.Micros {
	at := p.deadlines[seq]
	delete(p.deadlines, seq)
	return at
}
