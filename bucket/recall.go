package bucket

import (
	"time"

	"weir/ingest"
)

// Finished is a job that has ended, as the ledger knows it. JetStream forgets the ids of deleted messages when its
// server restarts; the ledger does not, and a producer that never got its receipt asks again.
type Finished struct {
	Key, DedupeID string
	Seq           uint64
	Until         time.Time // how long its id is known
}

// Recall makes the queue know finished jobs by their ids again. It must be called before the intake starts.
func (q *Queue) Recall(jobs []Finished) {
	for _, f := range jobs {
		p := q.Partition(f.Key)
		p.mu.Lock()
		if p.recalled == nil {
			p.recalled = map[string]Finished{}
		}
		p.recalled[ingest.StoredID(f.Key, f.DedupeID)] = f
		if f.Until.After(p.recallUntil) {
			p.recallUntil = f.Until
		}
		p.mu.Unlock()
	}
}

// recall finds a finished job by its message id. It is called with the lock held.
func (p *Partition) recall(id string, now time.Time) (Finished, bool) {
	if p.recalled == nil {
		return Finished{}, false
	}
	if now.After(p.recallUntil) {
		p.recalled = nil
		return Finished{}, false
	}
	f, ok := p.recalled[id]
	return f, ok && now.Before(f.Until)
}
