package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/schedule"
)

// holdMark is a stored mark of a hold that no job's retry mark speaks of: the answer that asked for it ended its job.
type holdMark struct {
	part  *partition
	seq   uint64 // 0 while it is being stored
	until bucket.Micros
}

// lastingHold is from when on a hold is stored: a restart takes about as long.
const lastingHold = 3 * time.Second

// keepHold stores a hold in the job's partition, so that a restart or another owner finds it. It does not block; until
// it is stored a crash forgets the hold, which costs a call that is pushed back.
func (w *apiWorker) keepHold(p *partition, n schedule.HoldChange) {
	if !p.mayCall() {
		return // it is the next owner's to find out
	}
	w.mu.Lock()
	key := keyOf(n.Queue)
	former := w.marks[key]
	if n.Until < w.now().Add(lastingHold) || n.Until < former.until.Add(time.Second) {
		w.mu.Unlock()
		return
	}
	w.marks[key] = holdMark{part: p, until: n.Until}
	w.mu.Unlock()
	w.running.Add(1)
	p.markers.Hold(key, n.Until, n.Why, func(seq uint64, err error) {
		defer w.running.Done()
		if err != nil {
			w.log.Warn("a hold could not be stored: a restart would forget it", "key", key, "until", n.Until.Time(), "err", err)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		former.discard()
		mark := holdMark{p, seq, n.Until}
		if w.marks[key].until != n.Until {
			mark.discard() // it is over, or there is a longer one
			return
		}
		w.marks[key] = mark
	})
}

// replayHoldLocked holds what was held before the start.
func (w *apiWorker) replayHoldLocked(p *partition, mark queue.RetryMark, seq uint64) {
	m := holdMark{p, seq, w.heldAtMostLocked(mark.NotBefore)}
	former := w.marks[mark.Key]
	if m.until <= w.now() || m.until <= former.until {
		m.discard()
		return
	}
	former.discard()
	w.marks[mark.Key] = m
	var q *schedule.KeyQueue
	if mark.Key != "" {
		q = w.s.Queue(mark.Key, &p.Partition)
		p.replay.held = append(p.replay.held, q)
	}
	w.s.Hold(q, m.until, mark.Reason)
}

// heldAtMostLocked is until when a time may hold that was read back from a stream: no longer from now on than anything that this worker
// would write. A mark or a record that says more is damaged, or somebody else wrote it.
func (w *apiWorker) heldAtMostLocked(until bucket.Micros) bucket.Micros {
	most := w.now().Add(max(schedule.MostHold, w.terms.policy.Retry.Max))
	if until <= most {
		return until
	}
	w.log.Warn("a stored mark or record holds calls for longer than weir ever does; it is damaged, or somebody else wrote it: it holds for less",
		"until", until.Time(), "instead", most.Time())
	return most
}

// forgetHold drops the mark of a hold that is over.
func (w *apiWorker) forgetHold(q *schedule.KeyQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(q)
	if m := w.marks[key]; m.until <= w.now() {
		m.discard()
		delete(w.marks, key)
	}
}

func (m holdMark) discard() {
	if m.seq != 0 && !m.part.lost.Load() {
		m.part.bucket.Discard(m.seq)
	}
}

// keyOf is the key of a queue, "" for nil, which stands for the api.
func keyOf(q *schedule.KeyQueue) string {
	if q == nil {
		return ""
	}
	return q.Key
}
