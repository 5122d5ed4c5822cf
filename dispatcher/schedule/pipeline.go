package schedule

import (
	"math"
	"time"

	"weir/bucket"
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

// isFull reports whether one of four bounds is reached: of running calls, of calls about to leave, of operations that go
// on at the api, or of outcomes that are not stored yet. So while outcomes cannot be stored, no more calls are paid for.
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

// underWay returns how many calls run or may start soon, plus the operations that hold slots. A call counts twice while it
// has started and its request has not left.
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
