package schedule

import (
	"math"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
)

// Pipeline counts the jobs that are on their way through a call, and measures how long each part of the way takes. It
// moves jobs between the phases from staging on. staged counts the jobs in the phases from staging to granted, and
// calls those in the phase calling. settling counts the jobs whose call has ended and whose outcome is not stored yet.
type Pipeline struct {
	pace     Pace
	staged   int
	calls    int
	settling int
	onWay    [len(bucket.Priorities)]int // jobs on their way to a slot, by the priority of their turn
	ended    uint64                      // calls that have ended

	took     time.Duration // how long it took lately to make a job ready
	callTime time.Duration // usual duration of a call; a second until it is known
	lasted   time.Duration // usual duration of a call; 0 until a call has ended
	lately   lately        // jobs that were granted a slot lately, or ended because a slot was refused for good
	exit     exit
	polling  polling // the operations that go on at the api
}

// lately counts what this process was granted in about the last LongWait. Older grants weigh less and less.
type lately struct {
	n  float64
	at bucket.Micros
}

// maxSettling bounds the calls that have ended and whose outcome is not stored yet.
const maxSettling = 512

// hasRoom reports whether another job may be made ready. While the breaker is not closed, only the probe may.
func (p *Pipeline) hasRoom(b *breaker) bool {
	if !b.closed() {
		return b.probe == nil
	}
	return p.staged < p.pace.MaxStaged
}

// isFull reports whether one of four bounds is reached: of running calls, of calls about to leave, of operations that
// go on at the api, or of outcomes that are not stored yet. So while outcomes cannot be stored, no more calls are paid
// for.
func (p *Pipeline) isFull() bool {
	return p.exit.isFull() || p.calls >= p.pace.MaxCalls || p.settlesMany() || p.polling.isFull()
}

// stage begins to make a job ready. The job takes a turn of the priority turn.
func (p *Pipeline) stage(j *Job, turn bucket.Priority) {
	j.Phase, j.turn = staging, turn
	p.staged++
	p.without(j, 1)
}

// unstage takes a job without a slot out of the pipeline, and puts it into the phase to.
func (p *Pipeline) unstage(j *Job, to Phase) {
	p.exit.leave(j)
	j.Phase = to
	p.staged--
	p.without(j, -1)
}

// without adds n to the number of jobs without a slot that take a turn of the same priority as j.
func (p *Pipeline) without(j *Job, n int) { p.onWay[j.turn-bucket.High] += n }

// start starts the call of a granted job.
func (p *Pipeline) start(j *Job) {
	p.exit.enter(j)
	j.Phase = calling
	p.staged--
	p.calls++
}

// unstart takes back a call that was to start and has not left.
func (p *Pipeline) unstart(j *Job) {
	j.Phase = granted
	p.calls--
	p.staged++
}

// end ends a call. The call's outcome must then be stored.
func (p *Pipeline) end(j *Job) {
	p.exit.leave(j)
	j.Phase, j.ended = settling, true
	p.ended++
	p.calls--
	p.settling++
}

// forgo lets a job end without a call. The job's outcome must then be stored.
func (p *Pipeline) forgo(j *Job) {
	j.Phase, j.ended = settling, true
	p.settling++
}

// settlesMany reports whether the bound of jobs whose outcomes are not stored yet is reached.
func (p *Pipeline) settlesMany() bool { return p.settling >= min(maxSettling, p.pace.MaxCalls) }

// settled stops counting a job whose outcome is stored.
func (p *Pipeline) settled(j *Job) {
	if j.ended {
		j.ended = false
		p.settling--
	}
}

// lead returns when the schedule must begin to make a job ready for a slot.
func (p *Pipeline) lead(slot bucket.Micros) bucket.Micros { return slot.Add(-p.pace.PrepareLead) }

// askAhead sets how long before its time a slot is asked for: LeastAhead plus by, and at most MostAhead. LeastAhead is
// enough for a store in this process.
func (p *Pipeline) askAhead(by time.Duration) { p.pace.ReserveAhead = min(LeastAhead+by, MostAhead) }

// LearnCall updates how long calls take.
func (p *Pipeline) LearnCall(took time.Duration) {
	p.callTime += (took - p.callTime) / 8
	if p.lasted == 0 {
		p.lasted = max(took, time.Microsecond)
		return
	}
	p.lasted += (took - p.lasted) / 8
}

// LearnLead updates how long it takes to make a job ready. It follows a longer time at once, and a shorter time slowly.
func (p *Pipeline) LearnLead(took time.Duration) {
	p.took = max(took, p.took-p.took/8+took/8)
	p.pace.PrepareLead = min(max(p.took+p.took/2, LeastLead), mostLead) + p.pace.ReserveAhead - LeastAhead
}

// grantedLately returns how many jobs were granted a slot lately. If it takes long to make a job ready, it looks back
// over a longer time. Otherwise the number would shrink by itself: few jobs would be ready, so few would be granted a
// slot, and still fewer would be made ready.
func (p *Pipeline) grantedLately(now bucket.Micros) float64 {
	return p.lately.n * math.Exp(-float64(max(0, p.lately.at.Until(now)))/float64(max(limits.LongWait, 2*p.took)))
}

// granted counts a job that was granted a slot, or that ended because a slot was refused for good.
func (p *Pipeline) granted(now bucket.Micros) {
	p.lately = lately{p.grantedLately(now) + 1, max(p.lately.at, now)}
}

// ahead counts the jobs of a key that come before the next job to be made ready. These are the granted jobs and, if
// calls are long, the running ones.
func (p *Pipeline) ahead(all Jobs, now bucket.Micros) int64 {
	n := all.count(granted)
	if p.callTime > shortCall || all.newest().Add(limits.LongWait) <= now {
		n += all.count(calling)
	}
	return int64(n)
}

// shortCall is the longest usual duration of an api's calls for which a key's next job is made ready while a call of
// the key runs. Behind a longer call, that job would take room from other keys, and would be unknown if the dispatcher
// died.
const shortCall = 100 * time.Millisecond

// underWay returns how many calls run or may start soon, plus the operations that hold slots. A call counts twice while
// it has started and its request has not left.
func (p *Pipeline) underWay() int { return p.calls + p.polling.held + p.exit.leaving }

// KeepSlot makes a job's operation hold its slot until the job has ended or rests again. The job is being called, is
// settling, or was found in the stream.
func (p *Pipeline) KeepSlot(j *Job) {
	if !j.holds {
		j.holds = true
		j.Queue.held++
		p.polling.held++
	}
}

// exit bounds the jobs that ask for a slot or have one, and whose calls have not left. A job that gets its slot while
// the process is busy with too many others misses it, after most of a call's work. If it then asked again together with
// all of the others, they would miss their slots again: a busy machine would give up hundreds of slots for each call.
// So the bound follows from what was missed, as the window of a connection follows from lost packets: it is halved by a
// missed slot, and grows by the calls that leave in time.
type exit struct {
	leaving int           // jobs on their way
	most    float64       // the bound, at least 1
	half    float64       // below it the bound grows by one with each call that leaves, above it with each round of calls
	cut     bucket.Micros // when the bound was halved last
}

// firstExit is the bound at the start. It grows by one with each call that leaves, until a slot is missed.
const firstExit = 256

func newExit() exit { return exit{most: firstExit, half: math.MaxInt32} }

// isFull reports whether no other job may ask for a slot.
func (e *exit) isFull() bool { return e.room() <= 0 }

// room returns how many other jobs may ask for a slot.
func (e *exit) room() int { return int(e.most) - e.leaving }

// enter counts a job on its way, once.
func (e *exit) enter(j *Job) {
	if !j.leaving {
		j.leaving = true
		e.leaving++
	}
}

// leave stops counting a job, if it is counted, because its call has left or it has no slot any more.
func (e *exit) leave(j *Job) {
	if j.leaving {
		j.leaving = false
		e.leaving--
	}
}

// inTime raises the bound, but not above most, because a call left in its slot.
func (e *exit) inTime(most int) {
	by := 1.0
	if e.most >= e.half {
		by = 1 / e.most
	}
	e.most = min(e.most+by, float64(max(most, 1)))
}

// missed halves the bound because a slot was missed. It ignores a slot that lies before the last halving, because the
// bound was still the former, higher one at that time.
func (e *exit) missed(slot, now bucket.Micros) {
	if slot < e.cut {
		return
	}
	e.cut, e.half = now, max(1, e.most/2)
	e.most = e.half
}

// Loaded reports that a job's message is loaded and, if it needs one, its intent stored.
func (s *Schedule) Loaded(j *Job) {
	j.Phase = ready
	s.Queues.Touch(j.Queue)
}

// Sent reports that a job's request has left at now, or that its call has ended without leaving. The calls behind it
// must not come too close to it. So if it left later than its slot allows, the queue's later slots are given back, and
// the queue continues from this call. Sent does nothing if it was already called for the job's slot. more is false if
// nothing waited for the call to leave.
func (s *Schedule) Sent(j *Job, now bucket.Micros) (more bool) {
	if !j.leaving {
		return false
	}
	more = s.Pipe.exit.isFull() && s.turns.Asking() > 0
	s.Pipe.exit.leave(j)
	if now > s.store.latest(j) {
		j.Queue.slip(j.Grant, now)
		s.Queues.Touch(j.Queue)
	} else {
		s.Pipe.exit.inTime(s.Pipe.pace.MaxCalls)
	}
	if j.Unsent {
		more, j.Unsent = true, false
		s.Queues.Touch(j.Queue)
	}
	return s.gate.freed() || more
}

// Unstage removes a staging job from the pipeline, or ends the look at a job. The job is then settled without a call.
func (s *Schedule) Unstage(j *Job) {
	(&step{Schedule: s}).unstage(j)
	s.packs.loosen(&s.Queues)
}

// Unconnected removes a staging job from the pipeline for which no connection could be opened. This counts as a failed
// call, and the dispatcher must report the call's end. If the job is the probe, it stays the probe until then.
func (s *Schedule) Unconnected(j *Job) {
	probe := s.Holds.breaker.probe == j
	s.Unstage(j)
	if probe {
		s.Holds.breaker.probe = j
	}
}

// Ended reports that a job's call has ended and its outcome is being stored. actual is what the call took from the
// shared limits; nil if it took what it had reserved.
func (s *Schedule) Ended(j *Job, actual []int64, now bucket.Micros) {
	s.Pipe.end(j)
	s.Pipe.part(j)
	s.Shared.Settled(&j.Call, j.At, actual, now)
	s.Queues.Touch(j.Queue)
	s.PermitFreed()
	s.gate.freed()
}

// Rest lets a job wait for its retry and drops its message from memory.
func (s *Schedule) Rest(j *Job, notBefore bucket.Micros) {
	s.Holds.breaker.letGo(j)
	s.suspects.clear(j, &s.Queues)
	s.Pipe.settled(j)
	if s.Pipe.polling.letGo(j) {
		s.gate.freed()
	}
	j.Phase, j.NotBefore = resting, s.Holds.restAt(j, notBefore)
	j.unload()
	s.Queues.Touch(j.Queue)
}

// Finished removes a settled job.
func (s *Schedule) Finished(j *Job) {
	s.Pipe.settled(j)
	s.suspects.clear(j, &s.Queues)
	s.Queues.ended(j)
	if s.Pipe.polling.letGo(j) {
		s.gate.freed()
	}
	s.looks.leave(j)
	j.unload()
	j.Queue.remove(j)
	s.census.unfinished--
	s.Queues.Touch(j.Queue)
}

// Postpone lets a staging job rest, because its slot turned out to be far off. The job rests until shortly before the
// slot.
func (s *Schedule) Postpone(j *Job, slot bucket.Micros) {
	s.Unstage(j)
	s.Rest(j, s.Pipe.lead(slot))
	j.limited = true
}

// Cancelled is the result of a request to cancel a job: a closed set.
type Cancelled string

// The results.
const (
	CancelTaken   Cancelled = "cancelled" // the job becomes a letter
	CancelCalling Cancelled = "calling"   // its call runs, or its outcome is being stored: too late
	CancelReading Cancelled = "reading"   // the owner still reads its queue after a start or a takeover: try again
	CancelGone    Cancelled = "gone"      // there is no such job, or it has ended
)

// Cancel ends a job that is not being called: the job never takes a slot again, and becomes a letter. If the job is
// polled, the api is first asked about its operation once more, and the job may end with a result.
func (s *Schedule) Cancel(key string, seq uint64) (*Job, Cancelled) {
	q := s.Queues.byKey[key]
	switch {
	case q == nil || !q.has(seq):
		return nil, CancelGone
	case !q.Partition.Open, q.Unread:
		return nil, CancelReading
	}
	j := q.Job(seq)
	if j == nil {
		j = s.Extract(q, seq)
	}
	switch leader, _ := q.leaderOf(seq); {
	case j.Phase == calling || j.Phase == settling, leader != nil && leader.Phase == calling:
		return nil, CancelCalling
	case j.cancelled:
		return j, CancelTaken
	case j.Phase == polled:
		j.cancelled = true
		s.Pipe.polling.cancelled = append(s.Pipe.polling.cancelled, j)
		s.Queues.Touch(q)
		return j, CancelTaken
	}
	j.cancelled, q.cancels = true, true
	s.Queues.Touch(q)
	return j, CancelTaken
}

// Unwind withdraws the jobs of queues: slots are given back, and ready jobs rest again. It returns the queues with jobs
// that are still on their way, for example because a slot is being asked for or a job is about to become ready. The
// caller must call Unwind again for these. The queues' partition must not be open, so that no other job begins.
func (s *Schedule) Unwind(queues []*KeyQueue, now bucket.Micros, fx *Effects) (busy []*KeyQueue) {
	back := step{s, now, *fx}
	for _, q := range queues {
		if first := firstGranted(q); first != nil {
			back.giveBack(q, first)
		}
		back.recall(q, allClasses)
		if q.Jobs.count(asking) > 0 {
			q.passed = true // a grant for this ask is given back at once
		}
		if q.Jobs.count(looking, staging, ready, asking, granted, calling, settling) > 0 {
			busy = append(busy, q)
		}
	}
	s.packs.loosen(&s.Queues)
	*fx = back.fx
	return busy
}

// Forget drops a queue whose partition this process no longer owns. Jobs in a phase after resting stay in q until they
// end. By then the schedule may have another queue of the same key.
func (s *Schedule) Forget(q *KeyQueue) {
	s.census.unfinished -= q.waits.Size() + s.Pipe.polling.forget(q)
	s.gate.freed()
	s.census.early -= q.waits.NotDue()
	for _, p := range q.waits.Priorities() {
		b := q.waits.Of(p)
		s.turns.Goes(p, b.Due())
		*b = backlog.List{}
	}
	delete(s.packs.since, q)
	q.cold = false
	kept := q.Jobs[:0]
	for _, j := range q.Jobs {
		if j.Phase == resting {
			s.looks.leave(j)
			s.census.unfinished--
			continue
		}
		kept = append(kept, j)
	}
	clear(q.Jobs[len(kept):])
	q.Jobs = kept
	s.Queues.timers.set(q, Never)
	s.Holds.forget(q)
	if s.Queues.byKey[q.Key] == q {
		delete(s.Queues.byKey, q.Key)
		s.Queues.drop(q)
		s.turns.Leave(q)
		s.census.keep(q, q.Empty() && s.Queues.byKey[q.Key] == q)
		q.seats.Part()
	}
}

// ForgetWaiting removes the queues of a partition that this process does not own any more from the queues that wait for
// a turn.
func (s *Schedule) ForgetWaiting(p *Partition) {
	s.turns.Forget(func(q *KeyQueue) bool { return q.Partition == p })
}

// Unstart takes back a call that was to start and has not left. The next step gives back the call's slot and the
// queue's later ones before it asks for others, because a store can take back only the newest slots.
func (s *Schedule) Unstart(j *Job) {
	s.Pipe.unstart(j)
	s.Shared.Unbegin(&j.Call)
	j.Unsent, j.missed = false, true
	s.Queues.Touch(j.Queue)
	s.PermitFreed()
}
