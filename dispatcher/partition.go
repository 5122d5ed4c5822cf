package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"golang.org/x/sync/errgroup"
)

// partition is one partition of an api's queue for as long as this process owns it: taken over again it is another partition.
type partition struct {
	schedule.Partition
	ownership.Tenure
	w       *apiWorker
	number  int
	name    recorder.Queue // for the flight recorder
	bucket  *queue.Partition
	markers *queue.Markers
	closing bool        // its calls may end, none starts any more
	lost    atomic.Bool // somebody else may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read and not needed yet, as far as there is room for them. It is nil when the partition has ended.
	cache      map[uint64]kept
	cacheBytes int64
	holdings   *queue.Holdings

	restored uint64 // the last job of a backup that was put back, 0 for none: see Restoration

	replay *replay // until all that was there at the takeover has been read

	denial holdMark // of an api that denies weir

	removals removals // what was taken out of its stream by hand

	telling sync.Mutex          // held while one more loss is noted as told
	told    map[string]toldMark // what was told of the damage of its store, by key; the worker's lock guards it

	intents   []intending // jobs that want an intent
	intending bool        // some are being stored
}

// mayCall reports whether a call of the partition may start now, or what came of one may be stored. It is asked right before
// each.
func (p *partition) mayCall() bool {
	return !p.lost.Load() && p.Valid()
}

// partitionOf is the tenure that a queue is of.
func partitionOf(q *schedule.KeyQueue) *partition { return q.Partition.Of.(*partition) }

// add books in a job that the reader found.
func (p *partition) add(ctx context.Context, e queue.Entry) {
	if p.addOne(ctx, e) {
		p.resumeKeys()
	}
}

func (p *partition) addOne(ctx context.Context, e queue.Entry) (resume bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	switch {
	case p.replay == nil:
		if p.meetDuplicateLocked(ctx, e) {
			return false
		}
		p.pushLocked(e)
		p.w.wakeUp()
	case !p.closing: // otherwise it is the next owner's
		q := p.pushLocked(e)
		return p.takeFoundLocked(ctx, q, e)
	}
	return false
}

// pushLocked lets a job wait that was read, and keeps its message where it may be called soon.
func (p *partition) pushLocked(e queue.Entry) *schedule.KeyQueue {
	p.expectLocked(e)
	notBefore := bucket.Micros(0)
	if at := ingest.NotBeforeOf(e.Header, e.Time); !at.IsZero() {
		notBefore = bucket.MicrosOf(at)
	}
	if notBefore <= p.w.now().Add(keepAhead) {
		p.keepLocked(e)
	}
	return p.w.s.PushEarly(e.Key, e.Seq, &p.Partition, bucket.MicrosOf(e.Time), notBefore)
}

// keepAhead is how long a message is kept at most for a job that is not to be called yet: the room is that of jobs that may be.
const keepAhead = time.Minute
