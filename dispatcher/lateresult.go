package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

// A result is stored before its call's record, and a worker may die between the two. Its job is in the stream then, and
// must not be called again. Records are stored within seconds of their results, or nothing more is called: so the results
// from shortly before the ledger's newest record on are all that can lack one, where there is no record at all the last
// 500,000.

// resultLeeway is how long before the newest record a result may stand that lacks its own. It covers also that the two
// streams have leaders of their own, each with its clock.
const resultLeeway = time.Minute

// maxResults bounds the results that are read where there is no record at all.
const maxResults = 500_000

// readResults notes where the newest results stand. What their leader had when it began is read, whichever replica delivers it.
func (r *tailReading) readResults(ctx context.Context, lastRecord time.Time) error {
	r.results = map[string]map[uint64]storedResult{}
	newest, err := bucket.AskLeader(ctx, r.js.Conn(), ResultsStream, `{"last_by_subj":"`+resultsPrefix+`>"}`)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if r.resultsFrom = lastRecord.Add(-r.bounds.Leeway); lastRecord.IsZero() {
		r.resultsFrom = time.Time{}
	}
	if newest == nil || newest.Time.Before(r.resultsFrom) {
		return nil
	}
	stream, err := r.js.Stream(ctx, ResultsStream)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	from := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &r.resultsFrom}
	if lastRecord.IsZero() {
		if from.OptStartTime = nil; newest.Seq > maxResults {
			r.resultsFrom = r.began
		}
		from.DeliverPolicy, from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(newest.Seq, maxResults)-maxResults+1
	}
	err = bucket.ReadUpTo(ctx, bucket.UpTo{Conn: r.js.Conn(), Stream: stream, From: from, Last: newest.Seq},
		func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			r.takeResult(msg, meta.Sequence.Stream)
			return nil
		})
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

func (r *tailReading) takeResult(msg jetstream.Msg, at uint64) {
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), resultsPrefix), ".")
	api, err := ingest.ParseToken(api)
	key, keyErr := ingest.ParseToken(token)
	if err != nil || keyErr != nil || !r.concerns(api) || !r.wants(api, key) {
		return
	}
	stream, seq, accepted, ok := parseResultID(msg.Headers().Get(ingest.HeaderMsgID))
	if !ok {
		return
	}
	of := r.results[stream]
	if of == nil {
		of = map[uint64]storedResult{}
		r.results[stream] = of
	}
	of[seq] = storedResult{at, bucket.KeySum(key), accepted, msg.Headers().Get(ingest.HeaderJobID)}
}

// storedResult is where a result stands, and whose it is.
type storedResult struct {
	at       uint64
	keySum   uint64
	accepted bucket.Micros // the job; 0 where the result's id does not say it, as ids once did not
	job      string
}

// of reports whether the result is the job's that stands at its sequence now.
func (r storedResult) of(e bucket.Entry) bool {
	return r.job == e.Header.Get(ingest.HeaderJobID) && (r.accepted == 0 || r.accepted == bucket.MicrosOf(e.Time))
}

// parseResultID reads what resultID wrote, and what it wrote before it named the time.
func parseResultID(id string) (stream string, seq uint64, accepted bucket.Micros, ok bool) {
	parts := strings.Split(id, ".") // no stream's name has a dot
	if len(parts) < 3 || len(parts) > 4 || parts[0] != "result" {
		return "", 0, 0, false
	}
	seq, err := strconv.ParseUint(parts[2], 10, 64)
	if err == nil && len(parts) == 4 {
		var micros int64
		micros, err = strconv.ParseInt(parts[3], 10, 64)
		accepted = bucket.Micros(micros)
	}
	return parts[1], seq, accepted, err == nil
}

// endWithResult ends a job that was found with a result and no record of it. Who waits for the result is told, again
// perhaps.
func (l *lane) endWithResult(ctx context.Context, t *task, at uint64) {
	again := func() { l.endWithResult(ctx, t, at) }
	if !l.reload(ctx, t, again) {
		return
	}
	msg, err := bucket.AskLeader(ctx, l.d.opts.Conn, ResultsStream, fmt.Sprintf(`{"seq":%d}`, at))
	if err != nil {
		l.log.Error("a result could not be loaded; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, again)
		return
	}
	var header nats.Header
	if msg != nil {
		header, err = nats.DecodeHeadersMsg(msg.Headers)
	}
	if msg == nil || err != nil || header.Get(ingest.HeaderJobID) != t.job.ID { // another job's, of a stream that is gone
		l.change(func(s *schedule) { s.rest(t, 1) })
		return
	}
	calls, _ := strconv.Atoi(header.Get(HeaderCalls)) // weir's own headers: always there
	attempts, _ := strconv.Atoi(header.Get(HeaderAttempts))
	l.mu.Lock()
	t.calls, t.attempts = max(t.calls, calls), max(t.attempts, attempts)
	t.billed = t.billed.Worst(deadletter.BilledYes)
	l.mu.Unlock()
	if t.job.ReplyTo != "" {
		l.d.reply(t.job.ReplyTo, &nats.Msg{Header: header, Data: msg.Data})
	}
	l.keepRecord(ctx, t, l.lostRecord(t, header), func() { l.finish(t, Done) })
}

// later does something again after a while, unless the lane stops.
func (l *lane) later(ctx context.Context, again func()) {
	if ctx.Err() != nil {
		return // the next start finds the job again
	}
	l.running.Add(1)
	time.AfterFunc(loadRetry, func() { defer l.running.Done(); again() })
}

// lostRecord is the ledger's record of a call of which only the result was stored.
func (l *lane) lostRecord(t *task, result nats.Header) *CallRecord {
	status, _ := strconv.Atoi(result.Get(HeaderStatus)) // weir's own headers: always there
	started, _ := time.Parse(time.RFC3339Nano, result.Get(HeaderCalledAt))
	ended, _ := time.Parse(time.RFC3339Nano, result.Get(HeaderFinishedAt))
	out := outcome{verdict: delivered, billed: deadletter.BilledYes, detail: "the worker died after its result was stored"}
	c := l.record(t, response{sent: true, status: status, started: started, ended: ended}, out)
	c.Planned = time.Time{}
	return c
}
