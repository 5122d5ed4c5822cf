package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// ErrWriterFull says that a Writer already holds as many messages as it may. The new message was not stored.
var ErrWriterFull = errors.New("too many messages wait to be stored")

// Writer stores messages in one stream in group commits: messages that arrive while one group is under way form the
// next group. It is safe for concurrent use.
type Writer struct {
	x        *Exchange
	max      int // messages
	maxBytes int
	known    map[string]uint64 // sequences by message id, for ids that the stream has forgotten; constant during Run
	wake     chan struct{}     // has a value when something may be waiting

	mu      sync.Mutex // guards what follows, and max
	waiting []writing
	bytes   int
}

type writing struct {
	msg  *nats.Msg
	may  func() bool // nil: always
	done func(Answer)
	size int // of the message, in bytes
}

// ErrNotNow says that the writer of a message has no right to store it now.
var ErrNotNow = errors.New("the writer had no right to store the message")

// NewWriter returns a Writer that holds at most maxWaiting messages with at most maxBytes bytes in all. It accepts a
// larger message if no other message waits. It stores them while Run runs. With a disk, a message counts as stored only
// when the disk has it.
func NewWriter(nc *nats.Conn, disk Disk, maxWaiting, maxBytes int) (*Writer, error) {
	x, err := NewExchange(nc, disk)
	if err != nil {
		return nil, err
	}
	return &Writer{x: x, max: maxWaiting, maxBytes: maxBytes, wake: make(chan struct{}, 1)}, nil
}

// Write stores m, which must carry a Nats-Msg-Id. The answer has the sequence if the stream has stored m, now or
// earlier. It has an error if the stream has not stored m, or if that is unknown. Write blocks until the answer is
// known, at most for as long as Run runs.
func (w *Writer) Write(m *nats.Msg) Answer { return w.write(nil, m) }

// WriteWhile is Write for a message that may be stored only while may reports true. The Writer calls may just before it
// sends m, and again before it sends m once more. If may reports false, the error is ErrNotNow: m was not stored, or
// that is unknown.
func (w *Writer) WriteWhile(may func() bool, m *nats.Msg) Answer { return w.write(may, m) }

func (w *Writer) write(may func() bool, m *nats.Msg) Answer {
	stored := make(chan Answer, 1)
	w.begin(may, m, func(a Answer) { stored <- a })
	return <-stored
}

// Begin is Write without blocking. It calls done once: from the Writer's goroutine or, if the Writer is full, before it
// returns.
func (w *Writer) Begin(m *nats.Msg, done func(Answer)) { w.begin(nil, m, done) }

func (w *Writer) begin(may func() bool, m *nats.Msg, done func(Answer)) {
	size := m.Size()
	w.mu.Lock()
	if len(w.waiting) >= w.max || w.bytes+size > w.maxBytes && w.bytes > 0 {
		w.mu.Unlock()
		done(Answer{Err: ErrWriterFull})
		return
	}
	w.waiting = append(w.waiting, writing{m, may, done, size})
	w.bytes += size
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run stores messages until ctx ends. Then it answers the waiting messages with an error, and returns.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			w.abandon(context.Cause(ctx))
			return w.x.Close()
		}
		for ctx.Err() == nil {
			group := w.take()
			if len(group) == 0 {
				break
			}
			w.store(ctx, group)
		}
	}
}

func (w *Writer) store(ctx context.Context, group []writing) {
	group = slices.DeleteFunc(group, func(x writing) bool {
		if x.may != nil && !x.may() {
			x.done(Answer{Err: ErrNotNow})
			return true
		}
		seq, known := w.known[x.msg.Header.Get(ingest.HeaderMsgID)]
		if known {
			x.done(Answer{Seq: seq, Duplicate: true})
		}
		return known
	})
	if len(group) == 0 {
		return
	}
	msgs := make([]*nats.Msg, len(group))
	for i := range group {
		msgs[i] = group[i].msg
	}
	may := func(i int) bool { return group[i].may == nil || group[i].may() }
	for i, answer := range w.x.commitWhile(ctx, msgs, may) {
		group[i].done(answer)
	}
}

func (w *Writer) take() []writing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return TakeGroup(&w.waiting, func(x *writing) int {
		w.bytes -= x.size
		return x.size
	})
}

func (w *Writer) abandon(cause error) {
	w.mu.Lock()
	waiting := w.waiting
	w.waiting, w.max = nil, 0
	w.mu.Unlock()
	for _, x := range waiting {
		x.done(Answer{Err: fmt.Errorf("not stored: %w", cause)})
	}
}
