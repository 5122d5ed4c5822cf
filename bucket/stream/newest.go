package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Newest describes a reading of a stream backwards from its end. JetStream and Stream are required.
type Newest struct {
	JetStream jetstream.JetStream
	Stream    string
	Subject   string    // "": all
	Since     time.Time // only messages stored then or later; zero: from the beginning on
	Before    uint64    // only messages before this sequence; 0: all
	Most      int       // how many messages are read at most; 0: no bound
	Bare      bool      // without bodies
}

// Reach says how far back a reading got.
type Reach struct {
	Read int       // messages
	From time.Time // time of the oldest message read; zero if none was read
	All  bool      // no requested message is older
}

// Bounds of one block, which memory holds as a whole.
const (
	firstSpan = 256  // sequences in the first block
	mostBare  = 4096 // messages without bodies
	mostWhole = 2048 // messages with bodies
	mostBytes = 8 << 20
)

// ErrEnough ends a reading without an error: take returns it when it needs no more messages.
var ErrEnough = errors.New("enough was read")

// Read passes the messages to take, the newest first, until take fails or the bound is reached; ErrEnough ends it
// without an error. It walks back in blocks. Its cost grows with the messages that it reads, and not with the stream.
// Its memory is that of one block. It fails with jetstream.ErrStreamNotFound if there is no such stream. It blocks
// until all messages are read, or ctx ends.
func (n Newest) Read(ctx context.Context, take func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error) (Reach, error) {
	var reach Reach
	source, err := n.JetStream.Stream(ctx, n.Stream)
	if err != nil {
		return reach, err
	}
	state := source.CachedInfo().State
	subject := n.Subject
	if subject == "" {
		subject = ">"
	}
	last, err := LastOf(ctx, n.JetStream.Conn(), n.Stream, subject)
	if err != nil {
		return reach, err
	}
	if n.Before > 0 {
		last = min(last, n.Before-1)
	}
	first := max(1, state.FirstSeq)
	if !n.Since.IsZero() && last > 0 {
		oldest, err := FirstSince(ctx, n.JetStream.Conn(), n.Stream, subject, n.Since)
		if err != nil {
			return reach, err
		}
		if oldest == nil {
			return Reach{All: true}, nil
		}
		first = max(first, oldest.Seq)
	}
	for span := uint64(firstSpan); last >= first; {
		from := first
		if last-first >= span {
			from = last - span + 1
		}
		b, err := n.block(ctx, source, from, last)
		if err != nil {
			return reach, err
		}
		for _, m := range slices.Backward(b.kept) {
			if n.Most > 0 && reach.Read == n.Most {
				return reach, nil
			}
			reach.Read, reach.From = reach.Read+1, m.meta.Timestamp
			if err := take(m.msg, m.meta); errors.Is(err, ErrEnough) {
				return reach, nil
			} else if err != nil {
				return reach, err
			}
		}
		switch last = from - 1; {
		case b.dropped:
			last, span = b.kept[0].meta.Sequence.Stream-1, max(firstSpan, span/4)
		case len(b.kept) <= n.most()/4:
			span = min(span*4, 1<<40)
		}
	}
	reach.All = true
	return reach, nil
}

func (n *Newest) most() int {
	if n.Bare {
		return mostBare
	}
	return mostWhole
}

// newestBlock holds the newest messages of a block.
type newestBlock struct {
	kept    []kept
	bytes   int
	dropped bool // there were more
}

type kept struct {
	msg   jetstream.Msg
	meta  *jetstream.MsgMetadata
	bytes int
}

// HeaderBytes returns about how many bytes headers take. Headers may be large even if a message is read without its
// body.
func HeaderBytes(h nats.Header) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// add keeps a message, and drops the oldest messages beyond the bounds.
func (b *newestBlock) add(k kept, most int) {
	b.kept, b.bytes = append(b.kept, k), b.bytes+k.bytes
	for len(b.kept) > most || b.bytes > mostBytes && len(b.kept) > 1 {
		b.bytes -= b.kept[0].bytes
		b.kept[0], b.dropped = kept{}, true
		b.kept = b.kept[1:]
	}
}

// block reads a part of the stream and keeps its newest messages.
func (n *Newest) block(ctx context.Context, source jetstream.Stream, from, last uint64) (b newestBlock, err error) {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: n.Bare}
	if n.Subject != "" {
		cfg.FilterSubjects = []string{n.Subject}
	}
	err = ReadUntil(ctx, Until{Conn: n.JetStream.Conn(), Stream: source, From: cfg, Last: last, Clear: true}, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		b.add(kept{msg, meta, len(msg.Data()) + HeaderBytes(msg.Headers())}, n.most())
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("read %s: %w", n.Stream, err)
	}
	return b, nil
}
