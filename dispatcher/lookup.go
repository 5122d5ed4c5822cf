package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// A partition may have been out of service for longer than the ledger's end reaches back: its stream had no leader, or no replica
// had its api, while others were called. What came of its last calls is then looked up by their keys.

// traces are what came of one call.
type traces struct {
	record *ledger.Record
	result uint64 // where it stands, 0 for none
}

// lookUp looks for a result and a record of a job that has an intent, where that is older than what has been read. It reports
// whether there is none: otherwise the job is brought to the end it had, or the worker stops. It blocks until the ledger has
// answered.
func (w *apiWorker) lookUp(ctx context.Context, j *job) (none bool) {
	since := j.intendedAt.Add(-w.d.opts.Tail.OrDefault().Leeway)
	if j.intendedAt.IsZero() || w.d.tail.Knows(w.name, since) {
		return true
	}
	found, err := w.tracesOf(ctx, j, since)
	for err != nil {
		w.log.Error("what came of a call could not be looked up; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !sleep(ctx, loadRetry) {
			return false // the next start finds the job again
		}
		found, err = w.tracesOf(ctx, j, since)
	}
	j.intendedAt = time.Time{}
	c := found.record
	switch {
	case c != nil && c.Final:
		w.mu.Lock()
		j.doubt.recall(c.Billed, c.Idempotency)
		w.mu.Unlock()
		w.endAgain(ctx, j, c.Last())
	case found.result != 0:
		w.endWithResult(ctx, j, found.result)
	case c != nil && c.Call >= j.Calls: // it was to be called again
		w.accountedFor(j)
		w.update(func(s *schedule.Schedule) {
			j.lost, j.Unseen, j.Calls, j.attempts, j.Deaths, j.Failed = nil, false, c.Call, c.Attempt, 0, c.Detail
			j.doubt.recall(c.Billed, c.Idempotency)
			j.answeredAt = cmp.Or(c.Last().At, j.answeredAt)
			w.dropIntentsLocked(j)
			w.restLocked(j, max(w.heldAtMostLocked(c.NotBefore), 1))
		})
	default:
		return true
	}
	return false
}

// tracesOf reads what was stored since a time of the job's key. It blocks until it has.
func (w *apiWorker) tracesOf(ctx context.Context, j *job, since time.Time) (found traces, err error) {
	source := j.part.bucket.Name()
	c := ledger.Record{API: w.name, Key: j.Queue.Key}
	err = w.readSince(ctx, ledger.CallsStream, c.Subject(), since, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		c := ledger.Record{At: meta.Sequence.Stream}
		mine := json.Unmarshal(msg.Data(), &c) == nil && c.Stream == source && c.Seq == j.Seq && bucket.MicrosOf(c.Accepted) == j.accepted
		if mine && (found.record == nil || c.Call >= found.record.Call) {
			found.record = &c
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("ledger: %w", err)
	}
	err = w.readSince(ctx, ledger.ResultsStream, ledger.ResultSubject(w.name, j.Queue.Key), since, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		of, seq, accepted, ok := ledger.ParseResultID(msg.Headers().Get(ingest.HeaderMsgID))
		if ok && of == source && seq == j.Seq && (accepted == 0 || accepted == j.accepted) && msg.Headers().Get(ingest.HeaderJobID) == j.message.ID {
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
func (w *apiWorker) readSince(
	ctx context.Context, name, subject string, since time.Time, take func(jetstream.Msg, *jetstream.MsgMetadata) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	last, err := stream.LastOf(ctx, w.d.opts.Conn, name, subject)
	if err != nil || last == 0 {
		return err
	}
	source, err := w.d.opts.JetStream.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.ReadUntil(ctx, stream.Until{Conn: w.d.opts.Conn, Stream: source, Last: last, From: jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		HeadersOnly: name == ledger.ResultsStream,
	}}, take)
}

// lookUpTimeout bounds one look at a stream; what takes longer is tried again.
const lookUpTimeout = time.Minute

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (w *apiWorker) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	stream, err := w.d.opts.JetStream.Stream(ctx, ledger.CallsStream)
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	info := stream.CachedInfo()
	begins := ledger.Beginning(info)
	if begins.IsZero() {
		return 0, nil
	}
	begun := w.now().Add(ledger.ServerSkew - info.TimeStamp.Sub(begins))
	if free := begun.Add(drain); free > w.now() {
		w.mu.Lock()
		told := w.shortTold
		w.shortTold = true
		w.mu.Unlock()
		if !told {
			w.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
// drain is how long its bucket takes to empty.
func (w *apiWorker) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c := ledger.Record{API: w.name, Key: key}
	msg, err := stream.AskLeader(ctx, w.d.opts.Conn, ledger.CallsStream, fmt.Sprintf(`{"last_by_subj":%q}`, c.Subject()))
	if err != nil {
		return 0, err
	}
	if msg == nil {
		return w.notRecorded(ctx, drain)
	}
	if err := json.Unmarshal(msg.Data, &c); err != nil {
		return 0, fmt.Errorf("ledger: record %d: %w", msg.Seq, err)
	}
	switch {
	case w.d.owner == nil:
		return c.TAT, nil
	case known != 0 && c.Instance == w.d.opts.Instance:
		return known, nil
	}
	calls, err := w.d.opts.JetStream.Stream(ctx, ledger.CallsStream)
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	return w.inherit(&c, msg.Time, calls.CachedInfo().TimeStamp), nil
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }
