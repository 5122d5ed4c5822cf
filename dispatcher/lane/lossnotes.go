package lane

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

// LossNotes are the stored notes of how much of a partition's damage was reported.
type LossNotes struct {
	part    *Owned
	telling sync.Mutex          // held while one more loss is noted as reported
	told    map[string]toldMark // by key; the lane's lock guards it
}

// ToldOf returns how many losses of a key were reported. If key is "", these are losses without a known key.
func (n *LossNotes) ToldOf(key string) int {
	n.part.W.Mu.Lock()
	defer n.part.W.Mu.Unlock()
	return n.told[key].n
}

// ReplayToldLocked restores a toldMark that was found in the partition.
func (n *LossNotes) ReplayToldLocked(mark queue.RetryMark, seq uint64) {
	n.keepToldLocked(mark.Key, toldMark{mark.Calls, seq})
}

func (n *LossNotes) keepToldLocked(key string, now toldMark) {
	if n.told == nil {
		n.told = map[string]toldMark{}
	}
	if former := n.told[key]; former.seq != 0 {
		n.part.Bucket.Discard(former.seq)
	}
	n.told[key] = now
}

// NoteTold stores how many losses of a key were reported. count returns the new number; it gets the former one.
func (n *LossNotes) NoteTold(ctx context.Context, key string, count func(was int) int) error {
	n.telling.Lock()
	defer n.telling.Unlock()
	now := count(n.ToldOf(key))
	return n.part.PersistOf(ctx, func() error {
		seq, err := n.part.Markers.NoteLost(key, now)
		if err == nil {
			n.part.W.Mu.Lock()
			n.keepToldLocked(key, toldMark{now, seq})
			n.part.W.Mu.Unlock()
		}
		return err
	})
}
