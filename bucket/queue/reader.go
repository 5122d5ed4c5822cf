package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// EntryKind is the kind of a message of a queue stream.
type EntryKind int

// The kinds. A replay needs intents and retries besides the jobs.
const (
	JobEntry EntryKind = iota
	IntentEntry
	RetryEntry
)

// Entry is one message of a queue stream.
type Entry struct {
	Kind   EntryKind
	Seq    uint64
	Key    string // of a job
	Header nats.Header
	Data   []byte
	Time   time.Time // when the stream stored it
	// Bare says that Data was left out: see ReadOptions.Bodies.
	Bare bool
}

// Bounds of reading. readBytes is how many bytes NATS may push ahead of the reader; if one message may be larger, the
// reader allows more. A consumer without heartbeats restarts itself.
const (
	readBytes     = 512 << 10
	leastMessage  = 128 // bytes, with its subjects and an id
	readHeartbeat = time.Second
	readRetry     = 500 * time.Millisecond // how long Read waits before it restarts a reader that broke
	readWatch     = 10 * time.Second       // how often the watchdog looks for a stall; two looks must agree
	// In a cluster the first request of a new consumer is sometimes lost. A takeover waits for the first message, so
	// the reader gives a first consumer up soon, and waits twice as long for each next one.
	readFirst = 500 * time.Millisecond
)

// ReadOptions are the functions that a reader calls. All are required.
type ReadOptions struct {
	// Mark gets every marker that was in the stream when this process took the partition over, in order, before any
	// job.
	Mark func(Entry)
	// MarkersLoaded is called once, when Mark has received all markers.
	MarkersLoaded func()
	Take          func(Entry) // every job, in order
	// Bodies reports whether the reader needs the bodies of jobs while it catches up. While it returns false, jobs come
	// without bodies.
	Bodies func() bool
	// Damaged is called before CaughtUp if the stream counts more messages than it delivered, or if its server threw
	// messages away: see Partition.Damage. It may be called although nothing is lost.
	Damaged func()
	// CaughtUp is called once, when Take and Mark have received everything that was in the stream when this process
	// took the partition over.
	CaughtUp func()
	// Removed is called with messages that were deleted from the stream by hand after the reader had caught up. There
	// is one call at a time, and it must not block.
	Removed func(Removal)
	// Stalled is called when the reader is restarted because it broke, or did not receive messages that are in the
	// stream.
	Stalled func(err error)
}

// Read reads the partition's stream in order: the messages in it, the oldest first, and then those that come. It blocks
// until ctx ends, or the stream is deleted, reset, or purged before it was read. If the reader breaks or receives
// nothing, Read restarts it from its last message. Read may be called again after it has returned; it then starts a new
// book.
func (p *Partition) Read(ctx context.Context, o ReadOptions) error {
	p.contents.begin()
	defer p.contents.end()
	r := &reading{ReadOptions: o, p: p, fence: p.contents.epoch(), connection: p.reconnects(), patience: readFirst}
	if r.fence == 0 {
		r.MarkersLoaded()
		p.contents.hasCaughtUp()
		r.CaughtUp()
	}
	for {
		err := r.listen(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errReadOtherwise):
			continue
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, errStreamReset), errors.Is(err, errEpochTaken):
			return fmt.Errorf("read %s: %w", p.source.name, err)
		}
		o.Stalled(err)
		if !stream.Sleep(ctx, readRetry) {
			return nil
		}
	}
}

// reading is one Read of a partition.
type reading struct {
	ReadOptions
	p            *Partition
	fence        uint64 // the epoch up to which it must read to have caught up; 0 when it has
	marks        uint64 // the last marker that Mark has received
	markersKnown bool   // Mark has received all markers
	last         uint64 // the message that the watchdog found missing; twice the same message means a stall
	counted      bool   // held is known
	held         held   // what the stream counted when the reading began
	given        uint64 // how many messages of held were delivered so far
	// patience is how long the next consumer may take to deliver the first message that was there when the reading
	// began.
	patience time.Duration
	silence  time.Duration // how long the present consumer may deliver no expected message
	// connection is how often the connection had been lost when the watchdog last found that the stream was not reset.
	connection uint64
}

// errStalled says that the reader did not receive messages that its stream holds.
var errStalled = errors.New("the stream holds messages that were not delivered")

// errReadOtherwise asks Read to open a new consumer at once: with bodies or without, for larger messages than before,
// or because this consumer delivers nothing.
var errReadOtherwise = errors.New("the reader must open another consumer")

// listen reads on from the partition's last read message. It blocks until ctx ends, the consumer breaks, or the
// watchdog finds that the reader has stalled.
func (r *reading) listen(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.fence > 0 && !r.counted {
		if r.held, err = r.p.source.countHeld(ctx, r.fence); err != nil {
			return err
		}
		r.counted = true
	}
	if r.fence > 0 && !r.markersKnown {
		if err := r.readMarkers(ctx); err != nil {
			return err
		}
		r.markersKnown = true
		r.MarkersLoaded()
	}
	ahead := int(max(readBytes, r.p.queue.largest.Load()+readBytes/16))
	roomless := false // no room to read messages as large as these ahead
	if ahead > readBytes {
		space := r.p.queue.holdings.ahead.try(int64(ahead))
		defer space.Release()
		roomless = space == nil
	}
	bare := roomless || r.fence > 0 && !r.Bodies()
	consumer, err := r.p.source.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.p.contents.readTo() + 1, HeadersOnly: bare,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", r.p.source.name, err)
	}
	// The bytes must be the limit, and never the number of messages: the client has room for that many messages, but
	// not for the notice that a request has ended.
	msgs, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(ahead/leastMessage, ahead), jetstream.PullHeartbeat(r.p.heartbeat))
	if err != nil {
		return fmt.Errorf("read %s: %w", r.p.source.name, err)
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a deleted stream whatever its context says
	watched := make(chan struct{})
	defer func() { cancel(nil); <-watched }()
	go func() {
		defer close(watched)
		r.watch(ctx, cancel)
	}()
	next := r.firstWait(ctx)
	for first := r.fence > 0; ; first, next = false, jetstream.NextContext(ctx) {
		msg, err := msgs.Next(next)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case first && errors.Is(err, nats.ErrTimeout):
			r.patience *= 2
			return errReadOtherwise
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
			continue // the ordered consumer restarts itself
		case err != nil:
			return fmt.Errorf("read %s: %w", r.p.source.name, err)
		}
		// In the stream, this owner's epoch comes after everything that was there when the owner took over. So a
		// replica that lags cannot make the reader believe that it has caught up.
		if read := r.deliver(msg, bare); r.fence > 0 && read >= r.fence {
			if r.given < r.held.msgs || r.held.dropped > 0 {
				r.Damaged()
			}
			r.fence = 0
			r.p.contents.hasCaughtUp()
			r.CaughtUp()
		}
		if bare != (roomless || r.fence > 0 && !r.Bodies()) {
			return errReadOtherwise
		}
	}
}

// firstWait returns how long to wait for the first message of a new consumer. The wait has an end only if there
// certainly is a message: the owner's epoch.
func (r *reading) firstWait(ctx context.Context) jetstream.NextOpt {
	if r.fence > 0 {
		return jetstream.NextMaxWait(r.patience)
	}
	return jetstream.NextContext(ctx)
}

// take passes a job to Take, and counts it if it was there before this owner.
func (r *reading) take(e Entry) {
	if e.Seq < r.fence {
		r.given++
	}
	r.Take(e)
}

// watch checks every readWatch whether the stream's leader holds a message that should have been delivered long ago,
// and whether the stream was reset. It also checks for a reset as soon as the connection is back, because the sweeper
// deletes nothing until then.
func (r *reading) watch(ctx context.Context, stop context.CancelCauseFunc) {
	back := r.p.source.nc.StatusChanged(nats.CONNECTED)
	defer r.p.source.nc.RemoveStatusListener(back)
	tick := time.NewTicker(r.p.watch)
	defer tick.Stop()
	soon := time.NewTimer(0) // the connection may be back already
	defer soon.Stop()
	removals := time.NewTicker(r.p.removalWatch)
	defer removals.Stop()
	silence := newSilence(r)
	defer silence.timer.Stop()
	for {
		ticked := false
		select {
		case <-tick.C:
			ticked = true
		case <-back:
		case <-soon.C:
		case <-r.p.larger:
			stop(errReadOtherwise)
			return
		case <-removals.C:
			if err := r.lookForRemovals(ctx); err != nil {
				stop(err)
				return
			}
			continue
		case <-r.p.lookNow:
			if err := r.lookForRemovals(ctx); err != nil {
				stop(err)
				return
			}
			continue
		case <-silence.news:
			silence.begin()
			continue
		case <-silence.timer.C:
			if !silence.lasts(ctx) {
				continue
			}
			stop(errReadOtherwise)
			return
		case <-ctx.Done():
			return
		}
		read := r.p.contents.readTo()
		if ticked && r.last > read {
			stop(errStalled)
			return
		}
		switch set, err := r.streamReset(ctx); {
		case set && err == nil:
			stop(errStreamReset)
			return
		case err != nil:
			soon.Reset(readRetry)
		}
		if !ticked {
			continue
		}
		next, err := r.p.source.nextAfter(ctx, read)
		if err == nil {
			r.last = next // 0: the reader has read all messages
		}
	}
}

// deliver counts one message, passes it to Take if it is a job, and returns how far the stream has been read.
func (r *reading) deliver(msg jetstream.Msg, bare bool) (read uint64) {
	known := r.p.contents
	meta, err := msg.Metadata()
	if err != nil {
		return 0 // not a message of a stream
	}
	if meta.NumPending > 0 {
		known.expected.raise(meta.Sequence.Stream + 1)
	}
	entry := Entry{Seq: meta.Sequence.Stream, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp, Bare: bare}
	kind, token, ok := parseQueueSubject(msg.Subject())
	if !ok {
		return known.pass(entry)
	}
	if entry.Kind = kindOf(kind); entry.Kind == JobEntry {
		entry.Key, err = ingest.ParseToken(token)
	}
	// Only weir writes here. deliver ignores a message that weir cannot have written.
	if err == nil && known.read(entry) && entry.Kind == JobEntry {
		r.take(entry)
		if !ingest.NotBeforeOf(entry.Header, entry.Time).IsZero() {
			known.taken(entry.Key, entry.Seq)
		}
	}
	return entry.Seq
}

// Get loads the message of one job again. If messages may be large, it waits until the messages that are being loaded
// leave enough room.
func (p *Partition) Get(ctx context.Context, seq uint64) (Entry, error) {
	if most := p.queue.largest.Load(); most > readBytes {
		space, err := p.queue.holdings.loading.await(ctx, most)
		if err != nil {
			return Entry{}, fmt.Errorf("message %d of %s: %w", seq, p.source.name, err)
		}
		defer space.Release()
	}
	msg, err := p.source.stream.GetMsg(ctx, seq)
	if err != nil {
		return Entry{}, fmt.Errorf("message %d of %s: %w", seq, p.source.name, err)
	}
	_, token, _ := parseQueueSubject(msg.Subject)
	key, err := ingest.ParseToken(token)
	if err != nil {
		return Entry{}, fmt.Errorf("message %d of %s: %w", seq, p.source.name, err)
	}
	return Entry{Seq: seq, Key: key, Header: msg.Header, Data: msg.Data, Time: msg.Time}, nil
}
