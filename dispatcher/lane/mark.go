package lane

import (
	"weir/bucket"
	"weir/dispatcher/schedule"
)

// HoldMark is a stored mark of a hold. It is needed if no job's retry mark records the hold, because the answer that
// asked for the hold was to an inquiry or ended its job, or because the job ended during the hold.
type HoldMark struct {
	Part  *Owned
	Seq   uint64 // 0 while it is being stored
	Until bucket.Micros
}

// Discard deletes the mark from its partition, unless it is not stored yet or the partition is lost.
func (m HoldMark) Discard() {
	if m.Seq != 0 && !m.Part.Lost.Load() {
		m.Part.Bucket.Discard(m.Seq)
	}
}

// KeyOf returns the key of a queue. It returns "" for nil, which stands for the api.
func KeyOf(q *schedule.KeyQueue) string {
	if q == nil {
		return ""
	}
	return q.Key
}
