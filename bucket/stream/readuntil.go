package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Until describes the messages of a stream up to a place. All fields but Clear and Ahead are required.
type Until struct {
	Conn   *nats.Conn
	Stream jetstream.Stream
	From   jetstream.OrderedConsumerConfig // where the messages begin, and which of them are read
	Last   uint64                          // the sequence of the last message, as the stream's leader has it; see LastOf
	Clear  bool                            // delete the consumer afterwards, for readers of many parts
	Ahead  int                             // how many messages may be on their way at once; 0: 1000
}

// Bounds of ReadUntil. upToAhead is how many messages may be on their way at once. If a replica delivers nothing for
// upToWait, ReadUntil asks the leader what is left. If there is more, it gives a first consumer up after upToFirst, and
// any consumer after upToStall at the latest. ReadIdle is how long the server keeps the consumer of a reader that has
// ended. A node that was cut off from the other nodes may lag for minutes.
//
// About one of a hundred new consumers in a cluster delivers nothing at all, because its first request is lost. A
// takeover waits for these readings, so ReadUntil gives a first consumer up soon, and waits twice as long for each next
// one.
const (
	upToAhead = 1000
	upToWait  = 250 * time.Millisecond
	upToFirst = 500 * time.Millisecond
	upToStall = 3 * time.Second
	ReadIdle  = 30 * time.Second
)

// ReadUntil passes the messages to take, in order, until take fails. A consumer lives on one replica, which may lag, so
// ReadUntil does not trust its pending count. If the consumer has no more messages before the last one has come,
// ReadUntil asks the leader whether there are any, since messages may have been deleted. If there are, ReadUntil
// creates another consumer, perhaps on another replica. It blocks until all are read, or ctx ends.
func ReadUntil(ctx context.Context, o Until, take func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error) error {
	if o.From.InactiveThreshold == 0 {
		o.From.InactiveThreshold = ReadIdle
	}
	patience := upToFirst
	for read := uint64(0); read < o.Last; patience = min(2*patience, upToStall) {
		before := read
		all, err := o.readOn(ctx, &read, patience, take)
		if all || err != nil {
			return err
		}
		if read > before {
			o.From.DeliverPolicy, o.From.OptStartTime, o.From.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, read+1
		}
	}
	return nil
}

// readOn reads from one consumer. It returns false if the consumer delivers nothing although there are more messages.
// patience is how long the first message may take.
func (o *Until) readOn(ctx context.Context, read *uint64, patience time.Duration, take func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error) (all bool, err error) {
	consumer, err := o.Stream.OrderedConsumer(ctx, o.From)
	if err != nil {
		return false, err
	}
	if o.Clear {
		defer func() { _ = o.Stream.DeleteConsumer(ctx, consumer.CachedInfo().Name) }() // else the server does, later
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(cmp.Or(o.Ahead, upToAhead)), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return false, err
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a deleted stream whatever its context says
	silent, heard := consumer.CachedInfo().NumPending == 0, time.Now()
	for {
		if silent {
			more, err := o.More(ctx, *read)
			if err != nil || !more {
				return true, err
			}
			if time.Since(heard) > patience {
				return false, nil
			}
		}
		msg, err := msgs.Next(jetstream.NextMaxWait(upToWait))
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoHeartbeat):
			silent = true
			continue // the consumer lags, or is restarting
		case err != nil:
			return false, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return false, err
		}
		if meta.Sequence.Stream > o.Last {
			return true, nil
		}
		if err := take(msg, meta); err != nil {
			return false, err
		}
		if *read = meta.Sequence.Stream; *read == o.Last {
			return true, nil
		}
		silent, heard, patience = meta.NumPending == 0, time.Now(), upToStall
	}
}

// More reports whether the stream's leader holds a message after the last one read, up to Last.
func (o *Until) More(ctx context.Context, read uint64) (bool, error) {
	from := fmt.Sprintf(`"seq":%d`, max(read+1, o.From.OptStartSeq))
	if read == 0 && o.From.OptStartTime != nil {
		from = fmt.Sprintf(`"start_time":%q`, o.From.OptStartTime.UTC().Format(time.RFC3339Nano))
	}
	subjects := o.From.FilterSubjects
	if len(subjects) == 0 {
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		m, err := AskLeader(ctx, o.Conn, o.Stream.CachedInfo().Config.Name, fmt.Sprintf(`{%s,"next_by_subj":%q}`, from, subject))
		if err != nil || m != nil && m.Seq <= o.Last {
			return err == nil, err
		}
	}
	return false, nil
}

// LastOf returns the sequence of the newest message of a subject, as the stream's leader has it; 0 if there is none. If
// the newest message cannot be read, LastOf returns the sequence of the stream's last message, so that the earlier
// messages of the subject can be read up to there.
func LastOf(ctx context.Context, nc *nats.Conn, stream, subject string) (uint64, error) {
	end, _, err := End(ctx, nc, stream, subject)
	return end.Seq, err
}

// FirstSince returns the oldest message of a subject that was stored at a time or later, as the stream's leader has it;
// nil if there is none.
func FirstSince(ctx context.Context, nc *nats.Conn, stream, subject string, at time.Time) (*LeaderMessage, error) {
	return AskLeader(ctx, nc, stream, fmt.Sprintf(`{"start_time":%q,"next_by_subj":%q}`, at.UTC().Format(time.RFC3339Nano), subject))
}

// followAhead is how many messages NATS may push ahead of a Follow.
const followAhead = 1000

// Follow passes the messages of a stream to take, in order: the present ones and then those that come. It blocks until
// take fails, the stream can no longer be read, or ctx ends; then it returns the cause of ctx.
func Follow(ctx context.Context, source jetstream.Stream, from jetstream.OrderedConsumerConfig, take func(jetstream.Msg) error) error {
	return FollowClosely(ctx, source, from, followAhead, take)
}

// FollowClosely is Follow for a take that may block for long. The parameter ahead bounds how many messages wait in
// memory for take.
func FollowClosely(
	ctx context.Context, source jetstream.Stream, from jetstream.OrderedConsumerConfig, ahead int, take func(jetstream.Msg) error,
) error {
	consumer, err := source.OrderedConsumer(ctx, from)
	if err != nil {
		return err
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(ahead), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a deleted stream whatever its context says
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout):
			continue // the ordered consumer restarts itself
		case err != nil:
			return err
		}
		if err := take(msg); err != nil {
			return err
		}
	}
}
