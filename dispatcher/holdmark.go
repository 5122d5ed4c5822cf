package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/schedule"
)

// holdNotes reports holds that begin and end, and keeps the stored marks of those that last.
type holdNotes struct {
	*lane
	marks map[string]holdMark // by key, "" for the api; the lane's lock guards it
}

func newHoldNotes(l *lane) *holdNotes { return &holdNotes{l, map[string]holdMark{}} }

// lastingHold is the shortest hold that is stored. A restart takes about as long.
const lastingHold = 3 * time.Second

// keepHold stores a hold in the job's partition, so that a restart or another owner finds it. It does not block. If a
// crash comes before the mark is stored, the hold is lost, which costs one call that is pushed back.
func (w *holdNotes) keepHold(p *partition, n schedule.HoldChange) {
	if !p.mayCall() {
		return // the next owner finds out by itself
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
			w.log.Warn("could not store a hold: a restart would forget it", "key", key, "until", n.Until.Time(), "err", err)
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

// replayHoldLocked renews a hold from a mark that was found in the partition. It returns the held queue, nil if the mark
// holds the api or no longer anything.
func (w *holdNotes) replayHoldLocked(p *partition, mark queue.RetryMark, seq uint64) *schedule.KeyQueue {
	m := holdMark{p, seq, w.heldAtMostLocked(mark.NotBefore)}
	former := w.marks[mark.Key]
	if m.until <= w.now() || m.until <= former.until {
		m.discard()
		return nil
	}
	former.discard()
	w.marks[mark.Key] = m
	var q *schedule.KeyQueue
	if mark.Key != "" {
		q = w.s.Queue(mark.Key, &p.Partition)
	}
	w.s.Hold(q, m.until, mark.Reason)
	return q
}

// forgetHold drops the mark of a hold that is over.
func (w *holdNotes) forgetHold(q *schedule.KeyQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(q)
	if m := w.marks[key]; m.until <= w.now() {
		m.discard()
		delete(w.marks, key)
	}
}

// keepDenial stores in each of the api's partitions that the api denies weir, so that a restart or another owner begins
// with one call and not with one of each key. It does not block. If a crash comes before the mark is stored, the denial
// is lost, which costs calls that are denied.
func (w *holdNotes) keepDenial(until bucket.Micros, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.partitions {
		if p == nil || p.markers == nil || p.lost.Load() || !p.mayCall() {
			continue // the next owner finds out by itself
		}
		if p.denial.seq != 0 && until < p.denial.until.Add(time.Second) {
			continue // the stored mark says as much
		}
		w.running.Add(1)
		p.markers.Deny(until, why, func(seq uint64, err error) {
			defer w.running.Done()
			if err != nil {
				w.log.Warn("could not store that the api denies weir's access: a restart would forget it", "stream", p.bucket.Name(), "err", err)
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.markDenialLocked(holdMark{p, seq, until})
		})
	}
}

// markDenialLocked keeps a stored mark of a denial. The partition keeps the latest one for as long as the api denies
// weir.
func (w *holdNotes) markDenialLocked(m holdMark) {
	former := m.part.denial
	switch {
	case !w.s.At(w.now()).Denied(), m.until < former.until:
		m.discard()
		return
	}
	former.discard()
	m.part.denial = m
}

// replayDenialLocked restores a denial from a mark that was found in the partition.
func (w *holdNotes) replayDenialLocked(p *partition, mark queue.RetryMark, e queue.Entry) {
	until := w.heldAtMostLocked(mark.NotBefore)
	w.s.DenyAgain(until, bucket.MicrosOf(e.Time), mark.Reason)
	w.markDenialLocked(holdMark{p, e.Seq, until})
}

// dropDenialsLocked deletes the marks of denials when the api accepts weir again.
func (w *holdNotes) dropDenialsLocked() {
	if w.s.At(w.now()).Denied() {
		return
	}
	for _, p := range w.partitions {
		if p != nil && p.denial.seq != 0 {
			p.denial.discard()
			p.denial = holdMark{}
		}
	}
}

// announceHolds logs holds that have begun or ended and sends their events.
func (w *holdNotes) announceHolds(all []schedule.HoldChange) {
	for _, c := range all {
		w.tellHold(c)
	}
	if len(all) > 0 {
		w.wakeUp()
	}
}

func (w *holdNotes) tellHold(c schedule.HoldChange) {
	data := deadletter.HoldData{Why: c.Why}
	e := deadletter.Event{Type: deadletter.ResumedEvent, API: w.name, Key: keyOf(c.Queue)}
	attrs := []any{}
	if e.Key != "" {
		attrs = append(attrs, "key", e.Key)
	}
	if c.Until != 0 {
		at := c.Until.Time()
		e.Type, data.Until = deadletter.HeldEvent, &at
		attrs = append(attrs, "until", at)
	}
	if c.Why != "" {
		attrs = append(attrs, "reason", c.Why)
	}
	e.Data = data
	w.log.Info(string(e.Type), attrs...)
	w.env.letters.Send(e, func(err error) {
		if err != nil {
			w.log.Warn("could not store an event", "err", err)
		}
	})
}
