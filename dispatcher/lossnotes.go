package dispatcher

import (
	"context"
	"sync"

	"weir/bucket/queue"
)

// toldMark is a stored note of how much of a partition's damage was reported.
type toldMark struct {
	n   int
	seq uint64
}

// lossNotes are the stored notes of how much of a partition's damage was reported.
type lossNotes struct {
	part    *partition
	telling sync.Mutex          // held while one more loss is noted as reported
	told    map[string]toldMark // by key; the lane's lock guards it
}

// toldOf returns how many losses of a key were reported, or if key is "", of losses without a known key.
func (n *lossNotes) toldOf(key string) toldMark {
	n.part.w.mu.Lock()
	defer n.part.w.mu.Unlock()
	return n.told[key]
}

// replayToldLocked restores a toldMark that was found in the partition.
func (n *lossNotes) replayToldLocked(mark queue.RetryMark, seq uint64) {
	n.keepToldLocked(mark.Key, toldMark{mark.Calls, seq})
}

func (n *lossNotes) keepToldLocked(key string, now toldMark) {
	if n.told == nil {
		n.told = map[string]toldMark{}
	}
	if former := n.told[key]; former.seq != 0 {
		n.part.bucket.Discard(former.seq)
	}
	n.told[key] = now
}

// noteTold stores how many losses of a key were reported. count returns the new number from the former one.
func (n *lossNotes) noteTold(ctx context.Context, key string, count func(was int) int) error {
	n.telling.Lock()
	defer n.telling.Unlock()
	now := count(n.toldOf(key).n)
	return n.part.persistOf(ctx, func() error {
		seq, err := n.part.markers.NoteLost(key, now)
		if err == nil {
			n.part.w.mu.Lock()
			n.keepToldLocked(key, toldMark{now, seq})
			n.part.w.mu.Unlock()
		}
		return err
	})
}
