package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/ingest"
)

// A partition may have been out of service for longer than the ledger's end reaches back: its stream had no leader, or no replica
// had its api, while others were called. What came of its last calls is then looked up by their keys.

// traces are what came of one call.
type traces struct {
	record *CallRecord
	result uint64 // where it stands, 0 for none
}

// lookUp looks for a result and a record of a job that has an intent, where that is older than what has been read. It reports
// whether there is none: otherwise the job is brought to the end it had, or will be looked up again.
func (l *lane) lookUp(ctx context.Context, t *task) (none bool) {
	since := t.intendedAt.Add(-l.d.opts.Tail.orDefault().Leeway)
	if t.intendedAt.IsZero() || l.d.tail.knows(l.name, since) {
		return true
	}
	found, err := l.tracesOf(ctx, t, since)
	if err != nil {
		l.log.Error("what came of a call could not be looked up; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, func() { l.settleUnknown(ctx, t) })
		return false
	}
	t.intendedAt = time.Time{}
	c := found.record
	switch {
	case c != nil && c.Final:
		l.mu.Lock()
		t.billed = t.billed.Worst(c.Billed)
		l.mu.Unlock()
		l.endAgain(ctx, t, c.last())
	case found.result != 0:
		l.endWithResult(ctx, t, found.result)
	case c != nil && c.Call >= t.calls: // it was to be called again
		l.change(func(s *schedule) {
			t.unknown, t.calls, t.attempts, t.failed = false, c.Call, c.Attempt, c.Detail
			t.billed = t.billed.Worst(c.Billed)
			l.dropIntents(t)
			s.rest(t, max(c.NotBefore, 1))
		})
	default:
		return true
	}
	return false
}

// tracesOf reads what was stored since a time of the job's key. It blocks until it has.
func (l *lane) tracesOf(ctx context.Context, t *task, since time.Time) (found traces, err error) {
	stream := t.line.part.bucket.Name()
	c := CallRecord{API: l.name, Key: t.line.key}
	err = l.readSince(ctx, CallsStream, c.Subject(), since, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		var c CallRecord
		mine := json.Unmarshal(msg.Data(), &c) == nil && c.Stream == stream && c.Seq == t.seq && bucket.MicrosOf(c.Accepted) == t.accepted
		if mine && (found.record == nil || c.Call >= found.record.Call) {
			found.record = &c
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("ledger: %w", err)
	}
	err = l.readSince(ctx, ResultsStream, ResultSubject(l.name, t.line.key), since, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		of, seq, accepted, ok := parseResultID(msg.Headers().Get(ingest.HeaderMsgID))
		if ok && of == stream && seq == t.seq && (accepted == 0 || accepted == t.accepted) && msg.Headers().Get(ingest.HeaderJobID) == t.job.ID {
			found.result = meta.Sequence.Stream
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("results: %w", err)
	}
	return found, nil
}

// readSince reads what a stream's leader holds of one subject since a time.
func (l *lane) readSince(
	ctx context.Context, name, subject string, since time.Time, take func(jetstream.Msg, *jetstream.MsgMetadata) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	last, err := bucket.LastOf(ctx, l.d.opts.Conn, name, subject)
	if err != nil || last == 0 {
		return err
	}
	stream, err := l.d.opts.JetStream.Stream(ctx, name)
	if err != nil {
		return err
	}
	return bucket.ReadUpTo(ctx, bucket.UpTo{Conn: l.d.opts.Conn, Stream: stream, Last: last, From: jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		HeadersOnly: name == ResultsStream,
	}}, take)
}

// lookUpTimeout bounds one look at a stream; what takes longer is tried again.
const lookUpTimeout = time.Minute
