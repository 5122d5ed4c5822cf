package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/ingest"
)

// ResultLeeway is how long before the newest record a result may stand that lacks its own. It covers also that the two
// streams have leaders of their own, each with its clock.
const ResultLeeway = time.Minute

// maxResults bounds the results that are read where there is no record at all.
const maxResults = 500_000

// readResults notes where the newest results stand. What their leader had when it began is read, whichever replica delivers it.
func (r *Reading) readResults(ctx context.Context, lastRecord time.Time) error {
	r.results = map[string]map[uint64]StoredResult{}
	newest, err := stream.AskLeader(ctx, r.JetStream.Conn(), ResultsStream, `{"last_by_subj":"`+ResultsPrefix+`>"}`)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if r.resultsFrom = lastRecord.Add(-r.Bounds.Leeway); lastRecord.IsZero() {
		r.resultsFrom = time.Time{}
	}
	if newest == nil || newest.Time.Before(r.resultsFrom) {
		return nil
	}
	results, err := r.JetStream.Stream(ctx, ResultsStream)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	from := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &r.resultsFrom}
	if lastRecord.IsZero() {
		if from.OptStartTime = nil; newest.Seq > maxResults {
			r.resultsFrom = r.Began
		}
		from.DeliverPolicy, from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(newest.Seq, maxResults)-maxResults+1
	}
	err = stream.ReadUntil(ctx, stream.Until{Conn: r.JetStream.Conn(), Stream: results, From: from, Last: newest.Seq},
		func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			r.takeResult(msg, meta.Sequence.Stream)
			return nil
		})
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

func (r *Reading) takeResult(msg jetstream.Msg, at uint64) {
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), ResultsPrefix), ".")
	api, err := ingest.ParseToken(api)
	key, keyErr := ingest.ParseToken(token)
	if err != nil || keyErr != nil || !r.Concerns(api) || !r.Wants(api, key) {
		return
	}
	results, seq, accepted, ok := ParseResultID(msg.Headers().Get(ingest.HeaderMsgID))
	if !ok {
		return
	}
	of := r.results[results]
	if of == nil {
		of = map[uint64]StoredResult{}
		r.results[results] = of
	}
	of[seq] = StoredResult{at, queue.KeySum(key), accepted, msg.Headers().Get(ingest.HeaderJobID)}
}

// StoredResult is where a result stands, and whose it is.
type StoredResult struct {
	At       uint64
	KeySum   uint64
	accepted bucket.Micros // the job; 0 where the result's id does not say it, as ids once did not
	job      string
}

// Of reports whether the result is the job's that stands at its sequence now.
func (r StoredResult) Of(e queue.Entry) bool {
	return r.job == e.Header.Get(ingest.HeaderJobID) && (r.accepted == 0 || r.accepted == bucket.MicrosOf(e.Time))
}

// ParseResultID reads the message id of a result, also of one that does not name the time, as ids once did not.
func ParseResultID(id string) (results string, seq uint64, accepted bucket.Micros, ok bool) {
	origin, ok := strings.CutPrefix(id, "result.")
	if !ok {
		return "", 0, 0, false
	}
	return ParseOrigin(origin)
}

// ParseOrigin reads what OriginOf wrote, also where it does not name the time.
func ParseOrigin(origin string) (queued string, seq uint64, accepted bucket.Micros, ok bool) {
	parts := strings.Split(origin, ".") // no stream's name has a dot
	if len(parts) < 2 || len(parts) > 3 {
		return "", 0, 0, false
	}
	seq, err := strconv.ParseUint(parts[1], 10, 64)
	if err == nil && len(parts) == 3 {
		var micros int64
		micros, err = strconv.ParseInt(parts[2], 10, 64)
		accepted = bucket.Micros(micros)
	}
	return parts[0], seq, accepted, err == nil
}
