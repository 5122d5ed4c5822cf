package lane

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
)

// Owned is one tenure: a partition of an api's queue as long as this process owns it. Each takeover makes a new Owned.
type Owned struct {
	schedule.Partition
	ownership.Tenure
	W       *Lane
	Number  int
	name    recorder.Queue // the queue's name in the flight recorder
	Bucket  *queue.Partition
	Markers *queue.Markers
	Closing bool        // running calls may end, and no call starts any more
	Lost    atomic.Bool // another replica may own it, or may soon: nothing about it is stored any more

	Restored uint64              // the sequence of the last job of a restored backup, 0 for none: see Restoration
	Denial   HoldMark            // the stored mark that the api denies weir
	Removed  map[uint64]struct{} // jobs whose messages were deleted by hand; the lane's lock guards it

	Cache   ReadAhead
	Intents IntentBatch
	Told    LossNotes
}

// NewOwned returns a tenure that has not begun.
func NewOwned(l *Lane, number int, t ownership.Tenure) *Owned {
	p := &Owned{W: l, Number: number, Tenure: t, Bucket: l.Queue.Partitions()[number]}
	p.Of, p.name, p.Reading = p, recorder.QueueOf(p.Bucket.Name()), true
	p.Cache = newReadAhead(l.Queue.Holdings())
	p.Intents.part, p.Intents.turn, p.Told.part = p, make(chan struct{}, 1), p
	if r := l.Env.Restored; r != nil {
		p.Restored = r.Until[p.Bucket.Name()]
	}
	return p
}

// MayCall reports whether a call of the partition may start now, or an outcome may be stored. It must be called right
// before each start and each write.
func (p *Owned) MayCall() bool {
	return !p.Lost.Load() && p.Valid()
}

// PartitionOf returns the tenure that a queue belongs to.
func PartitionOf(q *schedule.KeyQueue) *Owned { return q.Partition.Of.(*Owned) }

// IsRemovedLocked reports whether a job's message was deleted by hand.
func (p *Owned) IsRemovedLocked(seq uint64) bool {
	_, gone := p.Removed[seq]
	return gone
}

// RecallKeptLocked gives a job its message if the message is still kept in memory, so that the job's letter has the
// body.
func (p *Owned) RecallKeptLocked(j *Job) {
	if j.Message != nil {
		return
	}
	e, kept := p.Cache.TakeKept(j.Queue.Key, j.Seq)
	if !kept {
		return
	}
	j.Message, _, _ = p.W.Restore(j, e, j.Terms.API.Rule)
	j.Accepted = bucket.MicrosOf(e.Time)
}

// PersistOf calls write when the right to the partition is certain. It fails if ctx ends first, or if the partition is
// lost.
func (p *Owned) PersistOf(ctx context.Context, write func() error) error {
	for !p.MayCall() {
		if p.Lost.Load() || !stream.Sleep(ctx, LeaseCheck) {
			return cmp.Or(context.Cause(ctx), ErrLetGo)
		}
	}
	return write()
}

// UntilStopping returns a context that ends when the worker begins to stop.
func (p *Owned) UntilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-p.W.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// StreamChange describes what weir noticed of a change by hand to one of its streams.
type StreamChange struct {
	Stream string    `json:"stream"`
	What   string    `json:"what"` // a sentence
	At     time.Time `json:"at"`
	Gone   bool      `json:"gone,omitempty"` // the stream does not exist
}

// TellChange reports a change by hand to the partition's stream: in the log, by a metric, and by Env.Changed.
func (p *Owned) TellChange(text string) {
	p.W.Log.Error("a queue's stream was changed by hand", "stream", p.Bucket.Name(), "what", text)
	p.W.Env.Metrics.Damages.WithLabelValues(p.W.Name).Inc()
	if p.W.Env.Changed != nil {
		p.W.Env.Changed(StreamChange{Stream: p.Bucket.Name(), What: text, At: time.Now()})
	}
}

// ErrLetGo says that a partition was dropped before something about it was stored, or before it was open.
var ErrLetGo = errors.New("the partition was dropped while it was opened")
