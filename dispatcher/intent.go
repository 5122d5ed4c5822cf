package dispatcher

import (
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

// foundIntent is an intent that was found in a stream.
type foundIntent struct {
	queue.Intent
	mark   *intentMark
	stored time.Time
}

// intentBatch stores the intents of a partition's jobs, in one message those of all jobs that want one at a time.
type intentBatch struct {
	part    *partition
	waiting []intending // jobs that want an intent; the lane's lock guards it and what follows
	storing bool        // a message of intents is being stored
	refused func()      // called when the stream has refused intents because it holds another epoch
}

// intend stores a job's intent, in one message with those of all other jobs of the partition that want one now. It
// blocks until the intent is stored, and reports whether it is. If not, the job rests.
func (b *intentBatch) intend(j *job) bool {
	stored := make(chan bool, 1)
	b.part.w.mu.Lock()
	b.waiting = append(b.waiting, intending{j, stored})
	b.part.w.mu.Unlock()
	b.storeIntents()
	return <-stored
}

// intending is a job that wants an intent. stored receives whether the intent is stored.
type intending struct {
	t      *job
	stored chan<- bool
}

// storeIntents stores the intents that a partition's jobs want. If a message of intents is under way, they wait for it
// and then go together in the next one.
func (b *intentBatch) storeIntents() {
	w := b.part.w
	w.mu.Lock()
	if b.storing || len(b.waiting) == 0 {
		w.mu.Unlock()
		return
	}
	wanted := b.waiting
	b.waiting, b.storing = nil, true
	intents := make([]queue.Intent, len(wanted))
	for i, one := range wanted {
		j := one.t
		intents[i] = j.intent(j.Calls + 1)
		j.entry = w.env.recorder.Prepare(b.part.callOf(&intents[i], b.part.markers.Epoch()), j.entry)
		intents[i].Entry = j.entry.ID()
	}
	w.mu.Unlock()
	b.part.markers.Intend(intents, func(seq uint64, err error) {
		if err == nil {
			fault.Pass(fault.IntentStored)
		}
		w.update(func(s *schedule.Schedule) {
			b.storing = false
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
			b.intentFailed(err)
		}
		for _, one := range wanted {
			one.stored <- err == nil
		}
		b.storeIntents()
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
// intentFailed calls refused instead.
func (b *intentBatch) intentFailed(err error) {
	if errors.Is(err, queue.ErrFenced) {
		b.refused()
		return
	}
	b.part.w.log.Error("could not store an intent; its calls wait", "err", err)
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
