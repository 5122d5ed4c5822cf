package schedule

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// An api may take several jobs of a key in one call: a pack (Policy.Packs). One job leads the pack. It goes the way of
// a single job, and takes one slot. The others are the pack's members. When the leader is made ready, they are attached
// to it until its call has ended. Meanwhile no step looks at them. Then each job is settled by itself. If the leader
// leaves its way without a call, its members rest in their places, and are packed again.
//
// A pack holds the first jobs of a priority that may be called, in their order, so that none overtakes another. A retry
// may go in any pack. A job that may have killed its owners goes alone (jobs.go), and so does the breaker's probe.
//
// If the api may have processed the call of a pack, under the pack's idempotency key, a bond holds the pack together:
// it is called again only with the same jobs. If one of these jobs has ended in another way, the bond is broken, and
// the others are loaded to be parked.

// Packing says how an api's jobs are packed.
type Packing struct {
	Jobs int           // jobs of one call at most
	Wait time.Duration // how long the first job of a key waits for others
}

// Bond says which pack a job belongs to until the job has ended.
type Bond struct {
	ID    string // the pack's idempotency key
	Place int    // of the job in the pack, from 0 on
	Of    int    // jobs of the pack
}

// packs holds the packs that are being gathered. It is empty for an api without packs.
type packs struct {
	since map[*KeyQueue]gathering // of queues with jobs that wait for others
	freed []*Job                  // members whose leader left its way; they are about to rest in their queues
}

// gathering says when a queue's first job of each priority began to wait for others, 0 if it does not wait.
type gathering [len(bucket.Priorities)]bucket.Micros

// first returns the earliest of these times, 0 if there is none.
func (g gathering) first() (first bucket.Micros) {
	for _, since := range g {
		if since != 0 && (first == 0 || since < first) {
			first = since
		}
	}
	return first
}

// gatherSince sets when a queue's first job of a priority began to wait for others.
func (p *packs) gatherSince(q *KeyQueue, of bucket.Priority, since bucket.Micros) {
	g := p.since[q]
	if g[of-bucket.High] = since; g == (gathering{}) {
		delete(p.since, q)
		return
	}
	if p.since == nil {
		p.since = map[*KeyQueue]gathering{}
	}
	p.since[q] = g
}

// stop ends the waits for others of a queue's priorities of which no job is left to wait, because it was cancelled or its
// deadline has passed. The next job of such a priority begins its own wait.
func (p *packs) stop(q *KeyQueue) {
	for i, since := range p.since[q] {
		if of := bucket.Priorities[i]; since != 0 && !q.Jobs.mayGather(of) && (!q.waits.Has(of) || !q.waits.Of(of).HasNext()) {
			p.gatherSince(q, of, 0)
		}
	}
}

// mayGather reports whether one of the jobs of a priority may wait for others, now or when it has been looked at.
func (all Jobs) mayGather(of bucket.Priority) bool {
	return slices.ContainsFunc(all, func(j *Job) bool {
		return j.Priority == of && (j.Phase == resting || j.Phase == looking) && !j.cancelled && j.Bond == nil
	})
}

// Members returns the other jobs of the pack that the job leads, in their order. They come behind the leader.
func (j *Job) Members() []*Job { return j.members }

// IsBroken reports whether some jobs of a job's pack are missing although a bond holds the pack together. The pack can
// then not be called again.
func (j *Job) IsBroken() bool { return j.Bond != nil && len(j.members)+1 != j.Bond.Of }

// gathers returns the time until which a queue waits for more jobs for its next pack of a priority, 0 if the pack is
// called now. j leads the pack; if j is nil, the first waiting job leads it.
func (s *step) gathers(q *KeyQueue, j *Job, of bucket.Priority) bucket.Micros {
	if j != nil && (j.Bond != nil || j.Deaths >= suspectFrom) {
		return 0
	}
	if s.packs.since[q][of-bucket.High] == 0 {
		s.packs.gatherSince(q, of, s.now)
	}
	return s.At(s.now).gathersUntil(q, j, of)
}

// gathersUntil returns what gathers returns for a queue whose first job of a priority has begun to wait for others. It
// returns 0 if it has not.
func (v View) gathersUntil(q *KeyQueue, j *Job, of bucket.Priority) bucket.Micros {
	p, since := v.s.policy.Packs, v.s.packs.since[q][of-bucket.High]
	if p == nil || since == 0 {
		return 0
	}
	until, by, n := since.Add(p.Wait), v.now, 0
	if j != nil {
		by = max(by, j.NotBefore)
	}
	for _, m := range q.Jobs {
		if m.joins(nil, of, by, v.now) {
			n++
			until = min(until, m.hurries())
		}
	}
	b := q.waits.Of(of)
	if n += b.Due(); n >= p.Jobs {
		return 0
	}
	if len(q.Partition.deadlines) > 0 {
		n = p.Jobs
		b.Seqs(func(seq uint64) bool {
			if at := q.Partition.deadlines[seq]; at != 0 {
				until = min(until, at.Add(-hurry))
			}
			n--
			return n > 0
		})
	}
	return until
}

// hurry is how long before the earliest deadline of a pack's jobs the pack stops waiting for more jobs.
const hurry = limits.LongWait

// hurries returns when a pack with this job stops waiting for more jobs because of the job's deadline. It returns Never
// if the job has no deadline.
func (j *Job) hurries() bucket.Micros {
	if j.Deadline == 0 {
		return Never
	}
	return j.Deadline.Add(-hurry)
}

// joins reports whether a job may go in a pack of a priority whose call starts no earlier than by. leader is the job
// that leads the pack, nil if it is not known yet.
func (j *Job) joins(leader *Job, of bucket.Priority, by, now bucket.Micros) bool {
	return j != leader && j.Priority == of && j.Phase == resting && !j.cancelled && j.awaits == "" && j.Bond == nil && j.Deaths < suspectFrom &&
		j.NotBefore <= by && !j.Past(now)
}

// gatheredUntil returns until when a queue waits for more jobs for one of its packs, 0 if it does not wait.
func (v View) gatheredUntil(q *KeyQueue) (first bucket.Micros) {
	for _, of := range q.waits.Priorities() {
		if until := v.gathersUntil(q, nil, of); until != 0 && (first == 0 || until < first) {
			first = until
		}
	}
	return first
}

// pack attaches members to a job that is made ready and whose call starts no earlier than by. If the job has a bond,
// the members are the bond's other jobs. Otherwise they are as many jobs as may go in one call.
func (s *step) pack(j *Job, by bucket.Micros) {
	q := j.Queue
	switch {
	case j.Bond != nil:
		for _, m := range slices.Clone(q.Jobs) {
			if m != j && m.Bond != nil && m.Bond.ID == j.Bond.ID && m.Phase == resting && !m.cancelled {
				j.attach(m)
			}
		}
		return
	case j.Deaths < suspectFrom && s.Holds.breaker.closed():
		s.packMore(j, max(by, s.now))
	}
	s.packs.gatherSince(q, j.Priority, 0) // the jobs that are left begin their own wait
}

// packMore attaches the queue's next jobs to j. It stops before a job that must be called before the jobs behind it.
func (s *step) packMore(j *Job, by bucket.Micros) {
	q, of, most, behind := j.Queue, j.Priority, s.policy.Packs.Jobs, false
	var later *Job // the first of the queue's jobs behind the next waiting one
	for _, m := range slices.Clone(q.Jobs) {
		switch {
		case len(j.members)+1 >= most:
			return
		case m == j:
			behind = true
		case later != nil || m.Priority != of:
		case m.First() && q.waitsBefore(m):
			later = m
		case m.joins(j, of, by, s.now):
			s.looks.leave(m)
			j.attach(m)
		case m.Phase == looking, m.First() && (m.Phase == resting || m.Phase == settling):
			return // no job of its priority overtakes it
		case behind && (m.First() && m.Phase < calling || m.Unsent):
			return // this pack may be called before m
		}
	}
	b := q.waits.Of(of)
	for len(j.members)+1 < most && b.HasNext() {
		at, _ := b.Next()
		if later != nil && later.place.Compare(at) < 0 {
			return // a later pack takes it
		}
		if deadline := q.Partition.deadlines[at.Seq]; deadline != 0 && deadline <= s.now {
			return // the job ends before a job behind it is called
		}
		s.turns.Goes(of, 1)
		j.add(q.jobOf(q.waits.Drop(of)))
	}
}

// firsts yields, in order, the jobs of the pack that j leads of which the api may not have seen a call yet.
func (j *Job) firsts(yield func(*Job) bool) {
	if (j.Calls == 0 || j.Unseen) && !yield(j) {
		return
	}
	for _, m := range j.members {
		if m.First() && !yield(m) {
			return
		}
	}
}

// attach takes a resting job out of its queue's jobs and puts it into the pack that j leads.
func (j *Job) attach(m *Job) {
	q := j.Queue
	i := slices.Index(q.Jobs, m)
	q.Jobs = slices.Delete(q.Jobs, i, i+1)
	j.add(m)
}

// add puts m into the pack that j leads. The pack is not called before the retry of m is due.
func (j *Job) add(m *Job) {
	m.Phase, j.carries, j.NotBefore = packed, j.carries || m.First(), max(j.NotBefore, m.NotBefore)
	j.Queue.Partition.inPacks(j.Queue, 1)
	j.members = append(j.members, m)
}

// bondDue returns when the pack of a resting job with a bond may be called again, or parked if the bond is broken.
// While outcomes of some of the pack's jobs are being stored, it returns Never, because these jobs may come to rest
// too.
func (j *Job) bondDue() (due bucket.Micros) {
	n, stored := 0, true
	for _, m := range j.Queue.Jobs {
		switch {
		case m.Bond == nil || m.Bond.ID != j.Bond.ID:
		case m.Phase == resting:
			n, due = n+1, max(due, m.NotBefore)
		default:
			stored = false
		}
	}
	if n < j.Bond.Of && !stored {
		return Never
	}
	return due
}

// dissolve frees the members of a job's pack, because the pack is not called now. They rest in their places after
// loosen has run.
func (p *packs) dissolve(j *Job) {
	p.free(j.members)
	j.members, j.carries = nil, false
}

func (p *packs) free(members []*Job) {
	for _, m := range members {
		m.Phase = resting
		m.unload()
	}
	p.freed = append(p.freed, members...)
}

// loosen gives freed members their places. It must not run while a loop goes over a queue's jobs.
func (p *packs) loosen(queues *Queues) {
	for _, m := range p.freed {
		q := m.Queue
		q.Partition.inPacks(q, -1)
		q.cancels = q.cancels || m.cancelled
		q.insert(m)
		queues.Touch(q)
	}
	p.freed = nil
}

// Shed takes the members from the n-th on out of a staging job's pack, because they cannot go in one call with the jobs
// before them. They rest.
func (s *Schedule) Shed(j *Job, n int) {
	s.packs.free(j.members[n:])
	j.members = j.members[:n:n]
	j.carries = slices.ContainsFunc(j.members, (*Job).First)
	s.packs.loosen(&s.Queues)
}

// part dissolves a job's pack when the pack's call has ended. From then on each job is settled by itself.
func (p *Pipeline) part(j *Job) {
	for _, m := range j.members {
		m.Phase, m.turn, m.ended = settling, j.turn, true
		p.settling++
		m.Queue.Partition.inPacks(m.Queue, -1)
		m.Queue.insert(m)
	}
	j.members, j.carries = nil, false
}

// isLate reports whether the deadline of one of a job's members has passed at now.
func (j *Job) isLate(now bucket.Micros) bool {
	return slices.ContainsFunc(j.members, func(m *Job) bool { return m.Past(now) })
}

// isSplit reports whether an operator has cancelled one of a job's members.
func (j *Job) isSplit() bool {
	return slices.ContainsFunc(j.members, func(m *Job) bool { return m.cancelled })
}

// split withdraws a granted or ready job, which dissolves its pack. It does nothing in other phases.
func (s *step) split(q *KeyQueue, j *Job) {
	switch j.Phase {
	case granted:
		s.giveBack(q, j)
	case ready:
	default:
		return // it is split when it is ready, is refused its slot, or its call has ended
	}
	s.withdraw(j, s.now)
	s.fx.Stale = append(s.fx.Stale, j)
}

// packed yields the members of packs, each with the job that leads its pack.
func (all Jobs) packed(yield func(leader, member *Job) bool) {
	for _, j := range all {
		for _, m := range j.members {
			if !yield(j, m) {
				return
			}
		}
	}
}

// leaderOf returns the member with this sequence and the job that leads its pack; nil if the job is in no pack.
func (all Jobs) leaderOf(seq uint64) (leader, member *Job) {
	for j, m := range all.packed {
		if m.Seq == seq {
			return j, m
		}
	}
	return nil, nil
}

// under counts the jobs in some phases, and the members of the packs that these jobs lead.
func (all Jobs) under(phases ...Phase) (n int) {
	for _, j := range all {
		if slices.Contains(phases, j.Phase) {
			n += 1 + len(j.members)
		}
	}
	return n
}

// packed returns how many jobs of a queue of the partition are members of packs.
func (p *Partition) packed(q *KeyQueue) int { return p.members[q] }

// inPacks adds n to the number of a queue's jobs that are members of packs.
func (p *Partition) inPacks(q *KeyQueue, n int) {
	if n += p.members[q]; n == 0 {
		delete(p.members, q)
		return
	}
	if p.members == nil {
		p.members = map[*KeyQueue]int{}
	}
	p.members[q] = n
}

// calls returns the least number of calls in which a key's first n jobs can be called.
func (p *Policy) calls(n int) int {
	if p.Packs == nil || n <= 0 {
		return n
	}
	return (n-1)/p.Packs.Jobs + 1
}
