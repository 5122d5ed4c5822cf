package queue

import (
	"context"
	"fmt"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Markers stand behind their jobs, and no call of a job may start before they are known. So they are read first, by
// themselves: calls need not wait then until a long queue has been read.

// readMarkers gives Mark every marker that stands before this owner's epoch, from where it has been given them to.
func (r *reading) readMarkers(ctx context.Context) error {
	p := r.p
	o := stream.Until{
		Conn: p.nc, Stream: p.stream, Last: r.fence - 1,
		From: jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.marks + 1,
			FilterSubjects: []string{
				queueSubject(p.queue.api, p.number, kindIntent, ">"), queueSubject(p.queue.api, p.number, kindRetry, ">"),
			},
		},
	}
	some, err := o.More(ctx, r.marks) // mostly there are none, and no consumer is needed
	if err == nil && some {
		err = stream.ReadUntil(ctx, o, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			r.mark(msg, meta)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("read the markers of %s: %w", p.name, err)
	}
	return nil
}

// mark gives one marker to Mark.
func (r *reading) mark(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
	seq := meta.Sequence.Stream
	kind, _, ok := parseQueueSubject(msg.Subject())
	if !ok || seq <= r.marks {
		return
	}
	r.marks = seq
	r.given++
	r.Mark(Entry{Kind: kindOf(kind), Seq: seq, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp})
}

// kindOf is what a queue subject's kind makes of its message.
func kindOf(kind string) EntryKind {
	switch kind {
	case kindIntent:
		return IntentEntry
	case kindRetry:
		return RetryEntry
	}
	return JobEntry
}
