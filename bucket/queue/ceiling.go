package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
)

// ceiling is how many jobs of one key an api's streams let in by themselves, or more: never less. Keys with a smaller
// capacity are counted. Other replicas raise it, by a configuration that this one has not heard of yet, or has refused: so it
// is looked up where there are others, and while nobody knows it every key is counted.
type ceiling struct {
	jobs   atomic.Int64
	looked atomic.Int64 // Micros
	every  time.Duration
}

// How often the streams are asked for their ceiling, and how old an answer may be.
const (
	ceilingLook  = time.Second
	ceilingStale = 5 * time.Second
)

// raise notes that so many are let in as of a time. It is never lowered, as that of the streams is not.
func (c *ceiling) raise(jobs int64, asked time.Time) {
	for {
		old := c.jobs.Load()
		if jobs <= old || c.jobs.CompareAndSwap(old, jobs) {
			break
		}
	}
	c.looked.Store(int64(bucket.MicrosOf(asked)))
}

// above reports whether the streams may let in more than a capacity.
func (q *Queue) above(capacity int64) bool {
	if q.others && time.Since(bucket.Micros(q.ceiling.looked.Load()).Time()) > ceilingStale {
		return true
	}
	return capacity < q.ceiling.jobs.Load()
}

// followCeiling looks the ceiling up until ctx ends. The first stream has it before the others: they are raised in order.
func (q *Queue) followCeiling(ctx context.Context) error {
	for stream.Sleep(ctx, q.ceiling.every) {
		if err := q.lookUpCeiling(ctx); err != nil {
			continue // what nobody knows is counted
		}
	}
	return nil
}

func (q *Queue) lookUpCeiling(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stream.AnswerWait)
	defer cancel()
	asked := time.Now()
	stream, err := q.js.Stream(ctx, StreamName(q.api, 0))
	if err != nil {
		return fmt.Errorf("ceiling of api %s: %w", q.api, err)
	}
	q.ceiling.raise(stream.CachedInfo().Config.MaxMsgsPerSubject, asked)
	return nil
}
