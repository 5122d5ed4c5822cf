package bulksubmit

import "time"

// Room is how much a bucket can take, by the configuration. The zero value means that this is unknown.
type Room struct {
	Capacity int64         // the most jobs that may wait; 0: unknown
	Interval time.Duration // the time after which the next place becomes free; 0: unknown
}

// bucket tracks one key's bucket in weir, and holds the jobs of the key that must still be sent. It is a plain value:
// callers pass the time.
type bucket struct {
	room     Room
	waiting  []*sending // in the order of the file
	inFlight int
	depth    int64     // at asOf: the unfinished jobs in weir and the jobs under way
	asOf     time.Time // of depth
	most     int64     // the highest position in a receipt
	until    time.Time // when to try again, as weir said
	window   int       // the most jobs that may be under way; 0: any number
	at       int       // index in byDue; -1: not in it
	due      time.Time
}

// widest is the largest window. A bucket that needs a larger one has no window.
const widest = 1 << 12

// never is the due time of a bucket that must wait for an answer before it sends more.
var never = time.Unix(1<<40, 0)

// next returns when the bucket's next job may be sent.
func (b *bucket) next(now time.Time) time.Time {
	switch {
	case b.window > 0 && b.inFlight >= b.window:
		return never
	case now.Before(b.until):
		return b.until
	case b.room.Capacity == 0:
		return now
	}
	over := b.depthAt(now) - b.room.Capacity + 1
	switch {
	case over <= 0:
		return now
	case b.inFlight > 0:
		return never // the next answer says more than the estimate
	case b.room.Interval <= 0:
		return now
	}
	return b.asOf.Add(time.Duration(over) * b.room.Interval)
}

// depthAt estimates how many jobs the bucket holds at now. It assumes that the bucket drains at its rate.
func (b *bucket) depthAt(now time.Time) int64 {
	depth := b.depth
	if b.room.Interval > 0 {
		depth -= int64(now.Sub(b.asOf) / b.room.Interval)
	}
	return max(depth, int64(b.inFlight))
}

// sent counts a job that is about to be sent.
func (b *bucket) sent(now time.Time) {
	b.depth = b.depthAt(now) + 1
	b.asOf = now
	b.inFlight++
}

// taken learns from a receipt. position jobs of the key are unfinished in weir, without those under way.
func (b *bucket) taken(position int, now time.Time) {
	b.inFlight--
	b.depth, b.asOf = int64(position+b.inFlight), now
	b.most = max(b.most, int64(position))
	if b.window *= 2; b.window > widest {
		b.window = 0
	}
}

// full learns from the refusal by a full bucket. After retryAfter one job is tried, and more follow only if weir accepts
// that job. If the configuration could not be read, the highest position in a receipt counts as the capacity.
func (b *bucket) full(retryAfter time.Duration, now time.Time) {
	b.inFlight--
	b.window, b.until = 1, now.Add(retryAfter)
	if b.room.Capacity == 0 && b.most > 0 {
		b.room = Room{Capacity: b.most, Interval: retryAfter}
	}
	if b.room.Capacity > 0 {
		b.depth, b.asOf = b.room.Capacity-1+int64(b.inFlight), b.until
	}
}

// idle reports whether the bucket has no jobs. If so, forgetting the bucket loses only an estimate.
func (b *bucket) idle() bool { return b.inFlight == 0 && len(b.waiting) == 0 }

// byDue is a heap of the buckets that have jobs to send, with the bucket that is due first on top.
type byDue []*bucket

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, k int) bool { return h[i].due.Before(h[k].due) }
func (h byDue) Swap(i, k int)      { h[i], h[k] = h[k], h[i]; h[i].at, h[k].at = i, k }

// Push implements heap.Interface.
func (h *byDue) Push(x any) {
	b, ok := x.(*bucket)
	if !ok {
		panic("bulksubmit: only buckets wait")
	}
	b.at = len(*h)
	*h = append(*h, b)
}

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	b.at = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
