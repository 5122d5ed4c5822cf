package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// resultLeeway is how long before the newest record a result without a record may have been stored. It allows for
// different clocks of the two streams' leaders.
const resultLeeway = time.Minute

// maxResults bounds the results that are read if there is no record at all.
const maxResults = 500_000

// readResults notes the places of the newest results. It reads up to the last result that the stream's leader had when
// the reading began, even if another server delivers them.
func (r *reading) readResults(ctx context.Context, lastRecord time.Time) error {
	r.results = map[string]map[uint64]StoredResult{}
	newest, _, err := stream.End(ctx, r.JetStream.Conn(), ResultsStream, ResultSubjects.Below())
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if r.resultsFrom = lastRecord.Add(-r.Bounds.Leeway); lastRecord.IsZero() {
		r.resultsFrom = time.Time{}
	}
	if newest.Seq == 0 || newest.Time.Before(r.resultsFrom) {
		return nil
	}
	p := portion{stream: ResultsStream, since: r.resultsFrom, bare: true}
	if lastRecord.IsZero() && newest.Seq > maxResults {
		r.resultsFrom, p.after = r.extent.Asked, newest.Seq-maxResults
	}
	err = p.read(ctx, r.JetStream, newest.Seq, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		r.takeResult(msg, meta)
		return nil
	})
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

func (r *reading) takeResult(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), string(ResultSubjects)), ".")
	api, err := ingest.ParseToken(api)
	key, keyErr := ingest.ParseToken(token)
	if err != nil || keyErr != nil || !r.concerns[api] || !r.Wants(api, key) {
		return
	}
	source, seq, result, ok := readResult(msg, meta)
	if !ok || !r.keeps(source) {
		return
	}
	of := r.results[source]
	if of == nil {
		of = map[uint64]StoredResult{}
		r.results[source] = of
	}
	result.KeySum = queue.KeySum(key)
	of[seq] = result
}

// StoredResult is the place of a result in its stream, and the job to which the result belongs.
type StoredResult struct {
	At       uint64
	KeySum   uint64
	Reused   bool          // it is the answer of another job: no call of its own job was made
	accepted bucket.Micros // when the stream took the job
	job      string
}

// Of reports whether the result is of the job e. If the stream was deleted since, and a new one counts from 1 again,
// another job may have the sequence that the result names.
func (r StoredResult) Of(e queue.Entry) bool {
	return r.is(e.Header.Get(ingest.HeaderJobID), bucket.MicrosOf(e.Time))
}

func (r StoredResult) is(job string, accepted bucket.Micros) bool {
	return r.job == job && r.accepted == accepted
}

// readResult reads the place of a result, and the job to which it belongs, but not the job's key. The message may lack
// its body.
func readResult(msg jetstream.Msg, meta *jetstream.MsgMetadata) (source string, seq uint64, r StoredResult, ok bool) {
	h := msg.Headers()
	source, seq, accepted, ok := ParseResultID(h.Get(ingest.HeaderMsgID))
	return source, seq, StoredResult{
		At: meta.Sequence.Stream, Reused: h.Get(HeaderReused) != "", accepted: accepted, job: h.Get(ingest.HeaderJobID),
	}, ok
}

// Requests chooses results of an api whose answers may be given again. They were stored since a time, and are behind
// the sequence After. Only results within the newest Most messages of the stream are read.
type Requests struct {
	API   string
	Since time.Time
	After uint64
	Most  uint64
}

// ReadRequests calls take with the request that each result names, in order. take also gets the result's sequence and
// when it was stored. ReadRequests returns the sequence of the api's last result, 0 if there is none. It blocks until
// all are read, or ctx ends.
func ReadRequests(ctx context.Context, js jetstream.JetStream, o Requests, take func(request string, seq uint64, stored time.Time)) (last uint64, err error) {
	p := portion{stream: ResultsStream, subject: ResultSubjects.Below(o.API), after: o.After, bare: true}
	if last, err = stream.LastOf(ctx, js.Conn(), p.stream, p.subject); err != nil || last == 0 {
		return 0, err
	}
	if o.After > last { // the stream was deleted and made again
		p.after = 0
	}
	first, err := stream.FirstSince(ctx, js.Conn(), p.stream, p.subject, o.Since)
	if err != nil || first == nil {
		return last, err
	}
	p.after = max(p.after, first.Seq-1)
	if last > o.Most {
		p.after = max(p.after, last-o.Most)
	}
	err = p.read(ctx, js, last, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if request := msg.Headers().Get(HeaderRequest); request != "" {
			take(request, meta.Sequence.Stream, meta.Timestamp)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("results: %w", err)
	}
	return last, nil
}

// FoundPrefix begins the message ids of results that an inquiry found. They need ids of their own, because a bar may
// have the id of the call's own result (dispatcher/settle/resultbar.go).
const FoundPrefix = "found."

// ReusedPrefix begins the message ids of results that are the answers of other jobs. They need ids of their own: a bar
// against such a result must not keep out the result of a call that follows.
const ReusedPrefix = "reused."

// ParseResultID reads the message id of a result.
func ParseResultID(id string) (results string, seq uint64, accepted bucket.Micros, ok bool) {
	for _, prefix := range [...]string{"result.", FoundPrefix, ReusedPrefix} {
		if origin, ok := strings.CutPrefix(id, prefix); ok {
			return ParseOrigin(origin)
		}
	}
	return "", 0, 0, false
}

// ParseOrigin parses what OriginOf returned.
func ParseOrigin(origin string) (queued string, seq uint64, accepted bucket.Micros, ok bool) {
	parts := strings.Split(origin, ".") // no stream's name has a dot
	if len(parts) != 3 {
		return "", 0, 0, false
	}
	seq, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return "", 0, 0, false
	}
	micros, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return "", 0, 0, false
	}
	return parts[0], seq, bucket.Micros(micros), true
}

// Lessen makes a result smaller that is too large for its stream. It returns false if nothing is left to remove.
func Lessen(m *nats.Msg) bool {
	const little = 4 << 10
	switch n := len(m.Data); {
	case n > 0 && n <= little:
		m.Data = nil
	case n > 0:
		m.Data = m.Data[:n/2]
	case m.Header.Get("Content-Type") != "":
		delete(m.Header, "Content-Type")
		return true
	default:
		return false
	}
	m.Header[HeaderBody] = []string{BodyCut}
	return true
}
