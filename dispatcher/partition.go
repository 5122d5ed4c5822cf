package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// partition is one tenure: a partition of an api's queue for as long as this process owns it. Each takeover makes a new
// one.
type partition struct {
	schedule.Partition
	ownership.Tenure
	w       *lane
	number  int
	name    recorder.Queue // for the flight recorder
	bucket  *queue.Partition
	markers *queue.Markers
	closing bool        // running calls may end, no call starts any more
	lost    atomic.Bool // another replica may own it: nothing about it is stored any more

	restored uint64              // the last job of a backup that was put back, 0 for none: see Restoration
	denial   holdMark            // of an api that denies weir
	removed  map[uint64]struct{} // jobs whose messages were deleted by hand; the lane's lock guards it

	cache   readAhead
	intents intentBatch
	told    lossNotes
}

// newPartition returns a tenure that has not begun.
func newPartition(l *lane, number int, t ownership.Tenure) *partition {
	p := &partition{w: l, number: number, Tenure: t, bucket: l.queue.Partitions()[number]}
	p.Of, p.name, p.Reading = p, recorder.QueueOf(p.bucket.Name()), true
	p.cache = newReadAhead(l.queue.Holdings())
	p.intents.part, p.told.part = p, p
	if r := l.env.restored; r != nil {
		p.restored = r.Until[p.bucket.Name()]
	}
	return p
}

// mayCall reports whether a call of the partition may start now, or an outcome may be stored. Ask it right before each.
func (p *partition) mayCall() bool {
	return !p.lost.Load() && p.Valid()
}

// partitionOf returns the tenure that a queue belongs to.
func partitionOf(q *schedule.KeyQueue) *partition { return q.Partition.Of.(*partition) }

// isRemovedLocked reports whether a job's message was removed.
func (p *partition) isRemovedLocked(seq uint64) bool {
	_, gone := p.removed[seq]
	return gone
}

// recallKeptLocked gives a job its message if that is still in memory, so that its letter has the body.
func (p *partition) recallKeptLocked(j *job) {
	if j.message != nil {
		return
	}
	e, kept := p.cache.takeKept(j.Queue.Key, j.Seq)
	if !kept {
		return
	}
	j.message, _ = ingest.Restore(ingest.Message{Key: j.Queue.Key, Header: e.Header, Body: e.Data}, j.terms.api.Rule, e.Time)
	j.accepted = bucket.MicrosOf(e.Time)
}

// persistOf calls write once the right to the partition is certain. It fails if ctx ends first or the partition is
// lost.
func (p *partition) persistOf(ctx context.Context, write func() error) error {
	for !p.mayCall() {
		if p.lost.Load() || !stream.Sleep(ctx, leaseCheck) {
			return cmp.Or(context.Cause(ctx), errLetGo)
		}
	}
	return write()
}

// untilStopping returns a context that ends when the worker begins to stop.
func (p *partition) untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-p.w.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// StreamChange is a change by hand of one of weir's streams, as far as weir noticed it.
type StreamChange struct {
	Stream string    `json:"stream"`
	What   string    `json:"what"` // a sentence
	At     time.Time `json:"at"`
	Gone   bool      `json:"gone,omitempty"` // the stream does not exist
}

// tellChange reports a change by hand of the partition's stream: in the log, by a metric and by Options.Changed.
func (p *partition) tellChange(text string) {
	p.w.log.Error("a queue's stream was changed by hand", "stream", p.bucket.Name(), "what", text)
	p.w.env.metrics.damages.WithLabelValues(p.w.name).Inc()
	if p.w.env.changed != nil {
		p.w.env.changed(StreamChange{Stream: p.bucket.Name(), What: text, At: time.Now()})
	}
}

var errLetGo = errors.New("the partition was dropped while it was opened")
