package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// EntryKind is what a message of a queue stream is.
type EntryKind int

// The kinds. Intents and retries are what replay must know besides the jobs.
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
}

// Reading bounds: how many messages NATS may push ahead of the reader, and how soon a reader that hears nothing, not
// even a heartbeat, is set up anew.
const (
	readAhead     = 1024
	readHeartbeat = time.Second
)

// Read reads the partition's stream in order, from the oldest message on and then whatever comes, and gives every
// entry to take. caughtUp is called once, when all that was in the stream at the start has been taken. Read blocks
// until ctx ends or the stream is lost.
func (p *Partition) Read(ctx context.Context, take func(Entry), caughtUp func()) error {
	p.mu.Lock()
	p.reading = true
	p.sweeper.read, p.sweeper.order = 0, nil
	clear(p.sweeper.deleted)
	p.mu.Unlock()
	consumer, err := p.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fmt.Errorf("read %s: %w", p.name, err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(readAhead), jetstream.PullHeartbeat(readHeartbeat))
	if err != nil {
		return fmt.Errorf("read %s: %w", p.name, err)
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a stream that is gone whatever its context says

	p.mu.Lock()
	fence := p.fence
	p.mu.Unlock()
	behind := fence > 0
	if !behind {
		caughtUp()
	}
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
			continue // the ordered consumer sets itself up anew
		case err != nil:
			return fmt.Errorf("read %s: %w", p.name, err)
		}
		// This owner's epoch is in the stream, behind everything that was there when it took over: no replica that
		// lags can make the reader think that it has seen all.
		if read := p.deliver(msg, take); behind && read >= fence {
			behind = false
			caughtUp()
		}
	}
}

// deliver hands one message on and returns how far the stream has been read.
func (p *Partition) deliver(msg jetstream.Msg, take func(Entry)) (read uint64) {
	meta, err := msg.Metadata()
	if err != nil {
		return 0 // not a message of a stream
	}
	entry := Entry{Seq: meta.Sequence.Stream, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp}
	kind, token, ok := parseQueueSubject(msg.Subject())
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sweeper.read = max(p.sweeper.read, entry.Seq)
		return p.sweeper.read
	}
	switch kind {
	case kindIntent:
		entry.Kind = IntentEntry
	case kindRetry:
		entry.Kind = RetryEntry
	default:
		entry.Key, err = ingest.ParseToken(token)
	}
	// Nobody but weir writes here; what it cannot have written it leaves alone.
	if err == nil && p.noteRead(entry) {
		take(entry)
	}
	return entry.Seq
}

// noteRead books a message in, and reports whether it is news: a reader that was set up anew repeats itself.
func (p *Partition) noteRead(e Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Seq <= p.sweeper.read {
		return false
	}
	p.sweeper.read = e.Seq
	if _, gone := p.sweeper.deleted[e.Seq]; gone {
		delete(p.sweeper.deleted, e.Seq) // a marker that was done with before it was read back
		return false
	}
	p.sweeper.order = append(p.sweeper.order, e.Seq)
	if e.Kind != JobEntry {
		return true
	}
	_, own := p.sweeper.own[e.Seq]
	delete(p.sweeper.own, e.Seq)
	switch same := p.pending[e.Header.Get(ingest.HeaderMsgID)]; {
	case own: // its ticket counts it
	case same != nil && !same.read:
		same.read = true
	default:
		p.book.enter(e.Key)
	}
	return true
}

// Get loads one job's message again.
func (p *Partition) Get(ctx context.Context, seq uint64) (Entry, error) {
	msg, err := p.stream.GetMsg(ctx, seq)
	if err != nil {
		return Entry{}, fmt.Errorf("message %d of %s: %w", seq, p.name, err)
	}
	_, token, _ := parseQueueSubject(msg.Subject)
	key, err := ingest.ParseToken(token)
	if err != nil {
		return Entry{}, fmt.Errorf("message %d of %s: %w", seq, p.name, err)
	}
	return Entry{Seq: seq, Key: key, Header: msg.Header, Data: msg.Data, Time: msg.Time}, nil
}

// Gone reports whether the stream's leader says that a message is not there. Get may be answered by a replica that
// lags, and nothing may be given up on its word.
func (p *Partition) Gone(ctx context.Context, seq uint64) (bool, error) {
	msg, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+p.name, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return false, fmt.Errorf("message %d of %s: %w", seq, p.name, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return false, fmt.Errorf("message %d of %s: unreadable answer", seq, p.name)
	}
	return answer.Error != nil && answer.Error.ErrorCode == codeNoMessage, nil
}
