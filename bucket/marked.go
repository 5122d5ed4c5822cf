package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Markers stand behind their jobs, and no call of a job may start before they are known. So they are read first, by
// themselves: calls need not wait then until a long queue has been read.

// errNoEpoch says that the epoch that a reader is to read up to is not in its stream any more.
var errNoEpoch = errors.New("this owner's epoch is not in the stream any more")

// markerWait is after how long without a marker it is looked whether the last one, the owner's epoch, is still there.
const markerWait = 10 * time.Second

// readMarkers gives Mark every marker that stands before this owner's epoch, from where it has been given them to.
func (r *reading) readMarkers(ctx context.Context) error {
	p := r.p
	subjects := []string{
		queueSubject(p.queue.api, p.number, kindIntent, ">"), queueSubject(p.queue.api, p.number, kindRetry, ">"),
	}
	if some, err := r.anyOf(ctx, subjects); err != nil || !some {
		return err
	}
	consumer, err := p.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.marks + 1,
		FilterSubjects: append(subjects, ownerSubject(p.queue.api, p.number)),
	})
	if err != nil {
		return fmt.Errorf("read the markers of %s: %w", p.name, err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(readAhead), jetstream.PullHeartbeat(readHeartbeat))
	if err != nil {
		return fmt.Errorf("read the markers of %s: %w", p.name, err)
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a stream that is gone whatever its context says
	heard := time.Now()
	for r.marks < r.fence {
		msg, err := msgs.Next(jetstream.NextMaxWait(markerWait))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			heard = time.Now()
			r.mark(msg)
		case !errors.Is(err, jetstream.ErrNoHeartbeat) && !errors.Is(err, nats.ErrTimeout):
			return fmt.Errorf("read the markers of %s: %w", p.name, err)
		case time.Since(heard) > markerWait:
			if found, err := p.fromLeader(ctx, fmt.Sprintf(`{"seq":%d}`, r.fence)); err == nil && found == 0 {
				return errNoEpoch
			}
		}
	}
	return nil
}

// mark gives one message to Mark, if it is a marker from before this owner's epoch.
func (r *reading) mark(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		return // not a message of a stream
	}
	seq := meta.Sequence.Stream
	kind, _, ok := parseQueueSubject(msg.Subject())
	if r.marks = max(r.marks, seq); ok && seq < r.fence {
		r.Mark(Entry{Kind: kindOf(kind), Seq: seq, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp})
	}
}

// anyOf reports whether the stream's leader holds a message of one of these subjects.
func (r *reading) anyOf(ctx context.Context, subjects []string) (bool, error) {
	for _, s := range subjects {
		found, err := r.p.fromLeader(ctx, fmt.Sprintf(`{"seq":1,"next_by_subj":%q}`, s))
		if err != nil {
			return false, fmt.Errorf("look for markers in %s: %w", r.p.name, err)
		}
		if found != 0 {
			return true, nil
		}
	}
	return false, nil
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
