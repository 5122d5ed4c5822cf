package queue

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
)

// ceiling is an upper bound of the number of jobs of one key that the api's streams accept. It is never too low. The
// queue counts the jobs of keys with a smaller capacity. Another replica may raise the streams' ceiling by a
// configuration that this replica has not read yet, or has refused. So if there are other replicas, the queue asks the
// streams for their ceiling, and counts every key while the answer is too old.
type ceiling struct {
	jobs   atomic.Int64
	looked atomic.Int64 // Micros
	every  time.Duration
}

// How often the queue asks the streams for their ceiling, and how old an answer may be.
const (
	ceilingLook  = time.Second
	ceilingStale = 5 * time.Second
)

// raise notes an answer of the streams: how many jobs of a key they accept. asked is when they were asked. raise never
// lowers the ceiling, because the streams' ceiling only rises.
func (c *ceiling) raise(jobs int64, asked time.Time) {
	for {
		old := c.jobs.Load()
		if jobs <= old || c.jobs.CompareAndSwap(old, jobs) {
			break
		}
	}
	c.looked.Store(int64(bucket.MicrosOf(asked)))
}

// above reports whether the streams may accept more than capacity jobs of a key.
func (q *Queue) above(capacity int64) bool {
	if q.others && time.Since(bucket.Micros(q.ceiling.looked.Load()).Time()) > ceilingStale {
		return true
	}
	return capacity < q.ceiling.jobs.Load()
}

// followCeiling asks for the ceiling regularly until ctx ends. It asks the first stream, because the streams are raised
// in order.
func (q *Queue) followCeiling(ctx context.Context) error {
	for stream.Sleep(ctx, q.ceiling.every) {
		if err := q.lookUpCeiling(ctx); err != nil {
			continue // above counts every key once the answer is too old
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
	jobs := stream.CachedInfo().Config.MaxMsgsPerSubject
	if jobs <= 0 { // no bound
		jobs = math.MaxInt64
	}
	q.ceiling.raise(jobs, asked)
	return nil
}
