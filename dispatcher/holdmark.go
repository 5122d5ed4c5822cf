package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/schedule"
)

// holdMark is a stored mark of a hold that no job's retry mark speaks of: the answer that asked for it ended its job.
type holdMark struct {
	part  *part
	seq   uint64 // 0 while it is being stored
	until bucket.Micros
}

// lastingHold is from when on a hold is stored: a restart takes about as long.
const lastingHold = 3 * time.Second

// keepHold stores a hold in the job's partition, so that a restart or another owner finds it. It does not block; until
// it is stored a crash forgets the hold, which costs a call that is pushed back.
func (l *lane) keepHold(p *part, n schedule.HoldChange) {
	if !p.mayCall() {
		return // it is the next owner's to find out
	}
	l.mu.Lock()
	key := keyOf(n.Line)
	former := l.marks[key]
	if n.Until < l.now().Add(lastingHold) || n.Until < former.until.Add(time.Second) {
		l.mu.Unlock()
		return
	}
	l.marks[key] = holdMark{part: p, until: n.Until}
	l.mu.Unlock()
	l.running.Add(1)
	p.markers.Hold(key, n.Until, n.Why, func(seq uint64, err error) {
		defer l.running.Done()
		if err != nil {
			l.log.Warn("a hold could not be stored: a restart would forget it", "key", key, "until", n.Until.Time(), "err", err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		former.discard()
		mark := holdMark{p, seq, n.Until}
		if l.marks[key].until != n.Until {
			mark.discard() // it is over, or there is a longer one
			return
		}
		l.marks[key] = mark
	})
}

// replayHoldLocked holds what was held before the start.
func (l *lane) replayHoldLocked(p *part, mark queue.RetryMark, seq uint64) {
	m := holdMark{p, seq, mark.NotBefore}
	former := l.marks[mark.Key]
	if m.until <= l.now() || m.until <= former.until {
		m.discard()
		return
	}
	former.discard()
	l.marks[mark.Key] = m
	var q *schedule.KeyQueue
	if mark.Key != "" {
		q = l.s.Queue(mark.Key, &p.Partition)
		p.replay.held = append(p.replay.held, q)
	}
	l.s.Hold(q, m.until, mark.Reason)
}

// forgetHold drops the mark of a hold that is over.
func (l *lane) forgetHold(q *schedule.KeyQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(q)
	if m := l.marks[key]; m.until <= l.now() {
		m.discard()
		delete(l.marks, key)
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
