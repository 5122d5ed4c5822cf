package dispatcher

import (
	"context"
	"errors"
	"time"

	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/dispatcher/schedule"
)

// An intent says that a job may be called from now on. It is stored before the call, and deleted when the call's
// outcome is stored. So after a crash the intents show which jobs may have been called.

// intentMark is one stored intent message. It may be deleted when none of its jobs needs it.
type intentMark struct {
	seq   uint64
	users int
}

// intend stores a job's intent, in one message with those of all other jobs of the partition that want one now. It
// blocks until the intent is stored, and reports whether it is. If not, the job rests.
func (p *partition) intend(j *job) bool {
	stored := make(chan bool, 1)
	p.w.mu.Lock()
	p.intents = append(p.intents, intending{j, stored})
	p.w.mu.Unlock()
	p.storeIntents()
	return <-stored
}

// intending is a job that wants an intent. stored receives whether the intent is stored.
type intending struct {
	t      *job
	stored chan<- bool
}

// storeIntents stores the intents that a partition's jobs want. If a message of intents is under way, they wait for it
// and then go together in the next one.
func (p *partition) storeIntents() {
	w := p.w
	w.mu.Lock()
	if p.intending || len(p.intents) == 0 {
		w.mu.Unlock()
		return
	}
	wanted := p.intents
	p.intents, p.intending = nil, true
	intents := make([]queue.Intent, len(wanted))
	for i, one := range wanted {
		j := one.t
		intents[i] = j.intent(j.Calls + 1)
		j.entry = w.env.recorder.Prepare(p.callOf(&intents[i], p.markers.Epoch()), j.entry)
		intents[i].Entry = j.entry.ID()
	}
	w.mu.Unlock()
	p.markers.Intend(intents, func(seq uint64, err error) {
		if err == nil {
			fault.Pass(fault.IntentStored)
		}
		w.update(func(s *schedule.Schedule) {
			p.intending = false
			mark := &intentMark{seq: seq, users: len(wanted)}
			for i, one := range wanted {
				if j := one.t; err == nil {
					j.intended, j.intendedBy = intents[i].Call, j.terms
					j.intents = append(j.intents, mark)
					w.madeLocked(j)
				} else {
					j.entry.LetGo()
					j.terms.call.Conns.Release()
					s.Unstage(j.Job)
					w.restLocked(j, w.now().Add(loadRetry))
				}
			}
		})
		if err != nil {
			p.intentFailed(err)
		}
		for _, one := range wanted {
			one.stored <- err == nil
		}
		p.storeIntents()
	})
}

// intent returns the intent of one call of the job.
func (j *job) intent(call int) queue.Intent {
	api := j.terms.api
	return queue.Intent{
		Seq: j.Seq, Call: call, Deaths: j.Deaths,
		Idempotency: api.KeyIdentity(), Timeout: api.Timeout, Price: api.Price, Target: api.Target(),
		Accepted: j.accepted, KeySum: queue.KeySum(j.Queue.Key), Entry: j.entry.ID(),
	}
}

// intentFailed logs a failed write of intents. If the stream refused it because it holds another owner's epoch,
// intentFailed calls examineFence instead.
func (p *partition) intentFailed(err error) {
	if errors.Is(err, queue.ErrFenced) {
		p.examineFence()
		return
	}
	p.w.log.Error("could not store an intent; its calls wait", "err", err)
}

// dropIntentsLocked releases a job's intents. It deletes each message that no other job needs.
func (j *job) dropIntentsLocked() {
	for _, mark := range j.intents {
		if mark.users--; mark.users == 0 && !j.part.lost.Load() {
			j.part.bucket.Discard(mark.seq)
		}
	}
	j.intents, j.intended, j.intendedBy = nil, 0, nil
	j.entry.LetGo()
}

// withdrawIntents deletes the intents of calls that did not start, once no call starts any more. A restart would find
// them and treat their jobs as called. It blocks until all that is finished is deleted from the stream, or ctx ends.
func (w *apiWorker) withdrawIntents(ctx context.Context) {
	w.mu.Lock()
	for q := range w.s.Queues() {
		for _, j := range q.Jobs {
			if !j.UnderWay() {
				dropIdleIntentsLocked(j)
			}
		}
	}
	w.mu.Unlock()
	tick := time.NewTicker(unsweptCheck)
	defer tick.Stop()
	for _, p := range w.partitions {
		for p != nil && p.bucket.Unswept() > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				w.log.Warn("stopped before all finished jobs were deleted; the next start deletes them", "stream", p.bucket.Name())
				return
			}
		}
	}
}

// unsweptCheck is how often a stopping worker checks whether everything finished is deleted.
const unsweptCheck = 5 * time.Millisecond
