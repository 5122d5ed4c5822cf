package queue

import (
	"sync"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// The intake tells a refused producer when to submit its job again. Producers that are refused at the same time get
// different times, each later than the one before by the time in which one more place becomes free. With one time for
// all, one producer would find room and the intake would refuse the others again. The times reserve nothing: the first
// producer to submit again gets the place. Each intake knows only the times that it gave itself.

// Bounds of the times that an intake remembers. Beyond them it may give two producers the same time.
const (
	mostTold = 65536
	// longestQueue bounds by how much a producer's time may be later than the first free place. Many producers with
	// earlier times may never submit again.
	longestQueue = time.Hour
)

// comebacks holds the times that producers were given. It is safe for concurrent use; its zero value holds none.
type comebacks struct {
	mu     sync.Mutex               // guards what follows
	newest map[string]bucket.Micros // by key
	told   map[string]bucket.Micros // by the job's stored id; tell repeats a time that has not passed
}

// comeback describes a refused job: its key, its id, and when a place should become free.
type comeback struct {
	key, id   string
	now, free bucket.Micros
	step      func() time.Duration // returns the time between two free places
}

// tell returns when the job should be submitted again: when the key should have a free place that no other job was told
// of.
func (c *comebacks) tell(who comeback) bucket.Micros {
	c.mu.Lock()
	before, again := c.told[who.id]
	last, queued := c.newest[who.key]
	c.mu.Unlock()
	if again && before > who.now && before >= who.free {
		return before
	}
	at := who.free
	if queued && last >= who.now {
		at = min(max(at, last.Add(who.step())), who.free.Add(longestQueue)) // step asks the schedule: do not hold mu
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest, c.told = withRoom(c.newest, who.now), withRoom(c.told, who.now)
	c.newest[who.key], c.told[who.id] = max(at, c.newest[who.key]), at
	return at
}

// withRoom returns a map with room for one more time. If times is full, it drops the times that have passed. If more
// than half remain, it drops all.
func withRoom(times map[string]bucket.Micros, now bucket.Micros) map[string]bucket.Micros {
	if times != nil && len(times) < mostTold {
		return times
	}
	for name, at := range times {
		if at < now {
			delete(times, name)
		}
	}
	if times == nil || len(times) > mostTold/2 {
		return map[string]bucket.Micros{}
	}
	return times
}

// comeBack returns after how long a producer should submit a refused job again. free is the time until a place should
// be free.
func (q *Queue) comeBack(limits bucket.KeyLimits, j *ingest.Job, free time.Duration) time.Duration {
	now := bucket.MicrosOf(time.Now())
	at := q.comebacks.tell(comeback{
		key: j.Key, id: ingest.StoredID(j.Key, j.DedupeID), now: now, free: now.Add(free),
		step: func() time.Duration { return q.placeStep(limits, j.Key) },
	})
	return max(leastRetry, now.Until(at))
}

// placeStep returns the time between two free places of a full bucket. That is the time between starts of its calls, by
// all known limits.
func (q *Queue) placeStep(limits bucket.KeyLimits, key string) time.Duration {
	step := q.rules.Load().rules.Interval(limits.Rate).Duration()
	if n := min(limits.Capacity, farPlace); n > 1 {
		first, last := q.eta(limits, Place{Key: key, Position: 1}, 0), q.eta(limits, Place{Key: key, Position: int(n)}, 0)
		if first != 0 && last != 0 {
			step = max(step, first.Until(last)/time.Duration(n-1))
		}
	}
	return step
}

// farPlace is how many positions placeStep samples to estimate how fast a bucket drains.
const farPlace = 1000
