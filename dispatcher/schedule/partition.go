package schedule

import "weir/bucket"

// Partition is what the schedule knows of one tenure of a partition. A partition that is taken over again is
// another Partition.
type Partition struct {
	Of       any           // the dispatcher's data; the schedule does not look at it
	Open     bool          // calls of queues that have been read far enough may start
	Stalled  bool          // too many finished jobs are not deleted yet
	Reading  bool          // jobs that were in the stream at the takeover are still to be read
	Leftover bucket.Micros // until when calls of an owner that did not release it may still run; 0: none may

	newest uint64 // sequence of the newest job that was pushed

	// members counts, for each queue, the jobs that are members of packs.
	members map[*KeyQueue]int

	// deadlines holds the deadlines of the waiting jobs that have one, by sequence. Each takes some 40 bytes.
	deadlines map[uint64]bucket.Micros
}

// Has reports whether the schedule has received the partition's jobs up to a sequence.
func (p *Partition) Has(seq uint64) bool { return seq <= p.newest }

// Expect notes the deadline of a waiting job. The job's message has it too, but is loaded only when the job can be
// called, and the deadline may pass before that.
func (p *Partition) Expect(seq uint64, at bucket.Micros) {
	if p.deadlines == nil {
		p.deadlines = map[uint64]bucket.Micros{}
	}
	p.deadlines[seq] = at
}

// takeDeadline removes and returns the deadline of a job that leaves the backlog, 0 for none.
func (p *Partition) takeDeadline(seq uint64) bucket.Micros {
	at := p.deadlines[seq]
	delete(p.deadlines, seq)
	return at
}
