package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
)

// keepDenial stores in each of its partitions that the api denies weir, so that a restart, or whoever takes one of them over, begins
// with one call and not with one of every key. It does not block; until it is stored a crash forgets it, which costs calls
// that are denied.
func (w *apiWorker) keepDenial(until bucket.Micros, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.partitions {
		if p == nil || p.markers == nil || p.lost.Load() || !p.mayCall() {
			continue // it is the next owner's to find out
		}
		if p.denial.seq != 0 && until < p.denial.until.Add(time.Second) {
			continue // what stands there says as much
		}
		w.running.Add(1)
		p.markers.Deny(until, why, func(seq uint64, err error) {
			defer w.running.Done()
			if err != nil {
				w.log.Warn("that the api denies weir could not be stored: a restart would forget it", "stream", p.bucket.Name(), "err", err)
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.markDenialLocked(holdMark{p, seq, until})
		})
	}
}

// markDenialLocked takes in a mark that stands in its partition: the latest one stays for as long as the api denies weir.
func (w *apiWorker) markDenialLocked(m holdMark) {
	former := m.part.denial
	switch {
	case !w.s.Denied(), m.until < former.until:
		m.discard()
		return
	}
	former.discard()
	m.part.denial = m
}

// replayDenialLocked takes up what a mark says that was found in a partition.
func (p *partition) replayDenialLocked(mark queue.RetryMark, e queue.Entry) {
	until := p.w.heldAtMostLocked(mark.NotBefore)
	p.w.s.DenyAgain(until, bucket.MicrosOf(e.Time), mark.Reason)
	p.w.markDenialLocked(holdMark{p, e.Seq, until})
}

// dropDenialsLocked takes the marks back when the api accepts weir again.
func (w *apiWorker) dropDenialsLocked() {
	if w.s.Denied() {
		return
	}
	for _, p := range w.partitions {
		if p != nil && p.denial.seq != 0 {
			p.denial.discard()
			p.denial = holdMark{}
		}
	}
}
