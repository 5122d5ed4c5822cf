package queue

import (
	"sync"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// A producer that is refused is told when to come back. Those that are refused at the same time are told one time after another, a
// place's worth apart: told all the same one, one of them would find room and the others would be refused again. The times are no
// reservations: who comes first is let in first. Every intake reckons by what it has told itself.

// Bounds of what is remembered of it; beyond them producers may be told the same time.
const (
	mostTold = 65536
	// longestQueue is how far behind the first free place a producer is told to come back: of those that were told before, many may
	// never come.
	longestQueue = time.Hour
)

// comebacks are the times that producers were told. It is safe for concurrent use; the zero value has told none.
type comebacks struct {
	mu     sync.Mutex               // guards what follows
	newest map[string]bucket.Micros // by key
	told   map[string]bucket.Micros // by the job's stored id: who asks again before his time is told it again
}

// comeback is who asks: a job of a key, of which a place should come free at a time.
type comeback struct {
	key, id   string
	now, free bucket.Micros
	step      func() time.Duration // until the place after one comes free
}

// tell is when the job should come back: at its key's next free place that nobody else was told of.
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
		at = min(max(at, last.Add(who.step())), who.free.Add(longestQueue)) // asks the schedule: not under our lock
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest, c.told = withRoom(c.newest, who.now), withRoom(c.told, who.now)
	c.newest[who.key], c.told[who.id] = max(at, c.newest[who.key]), at
	return at
}

// withRoom is a map with room for one more: times that have passed go, and all where that is not enough.
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

// comeBack is in how long a refused job should be handed in again, where a place for one should come free after some time.
func (q *Queue) comeBack(limits bucket.KeyLimits, j *ingest.Job, free time.Duration) time.Duration {
	now := bucket.MicrosOf(time.Now())
	at := q.comebacks.tell(comeback{
		key: j.Key, id: ingest.StoredID(j.Key, j.DedupeID), now: now, free: now.Add(free),
		step: func() time.Duration { return q.placeStep(limits, j.Key) },
	})
	return max(leastRetry, now.Until(at))
}

// placeStep is how far apart places of a full bucket come free: as its calls start, by all limits that are known.
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

// farPlace is the place in a bucket up to which it is looked how fast it drains.
const farPlace = 1000
