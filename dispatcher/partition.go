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

// partition is one tenure: a partition of an api's queue for as long as this process owns it. Each takeover makes a new
// one.
type partition struct {
	schedule.Partition
	ownership.Tenure
	w       *apiWorker
	number  int
	name    recorder.Queue // for the flight recorder
	bucket  *queue.Partition
	markers *queue.Markers
	closing bool        // running calls may end, no call starts any more
	lost    atomic.Bool // another replica may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read ahead of need, as far as they fit. It is nil when the tenure has ended.
	cache      map[uint64]kept
	cacheBytes int64
	holdings   *queue.Holdings

	restored uint64 // the last job of a backup that was put back, 0 for none: see Restoration

	replay *replay // nil once everything that was in the stream at the takeover has been read

	denial holdMark // of an api that denies weir

	removals removals // what was deleted from its stream by hand

	stock      stocktaking // of what was deleted before this tenure; it belongs to the reader, and then to takeStock
	stockTaken atomic.Bool // the jobs deleted before are reported: this owner may write notes
	noting     sync.Mutex  // guards what follows
	noted      inventory   // what this owner noted last
	unnoted    bool        // the last note could not be stored, which is logged

	telling sync.Mutex          // held while one more loss is noted as reported
	told    map[string]toldMark // what was reported of its store's damage, by key; the worker's lock guards it

	intents   []intending // jobs that want an intent
	intending bool        // a message of intents is being stored
}

// mayCall reports whether a call of the partition may start now, or an outcome may be stored. Ask it right before each.
func (p *partition) mayCall() bool {
	return !p.lost.Load() && p.Valid()
}

// partitionOf returns the tenure that a queue belongs to.
func partitionOf(q *schedule.KeyQueue) *partition { return q.Partition.Of.(*partition) }

// add queues or resumes a job that the reader has read.
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
	case !p.closing: // otherwise the next owner reads it
		p.stock.met(e.Seq)
		q := p.pushLocked(e)
		return p.takeFoundLocked(ctx, q, e)
	}
	return false
}

// pushLocked queues a job that was read, and keeps its message if the job may be called soon.
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

// keepAhead is how far ahead a job's due time may be for its message to be kept. The room belongs to jobs that may be
// called.
const keepAhead = time.Minute
