package dispatcher

import (
	"weir/bucket"
	"weir/dispatcher/schedule"
)

// holdMark is a stored mark of a hold that no job's retry mark records, because the answer that asked for the hold
// ended its job.
type holdMark struct {
	part  *partition
	seq   uint64 // 0 while it is being stored
	until bucket.Micros
}

func (m holdMark) discard() {
	if m.seq != 0 && !m.part.lost.Load() {
		m.part.bucket.Discard(m.seq)
	}
}

// keyOf returns the key of a queue. It returns "" for nil, which stands for the api.
func keyOf(q *schedule.KeyQueue) string {
	if q == nil {
		return ""
	}
	return q.Key
}
