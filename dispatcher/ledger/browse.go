package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoResults says that no result was ever stored on a server.
var ErrNoResults = errors.New("there are no results: weir has not run on this server")

// Result is a result from its stream. In a list, it has its Size but no Body.
type Result struct {
	Seq      uint64
	Stored   time.Time // when the server stored it
	API, Key string
	Job      string
	Status   int
	Accepted time.Time
	Header   nats.Header
	Body     []byte
	Size     int
	Queue    string // the stream in which the job was queued
	QueueSeq uint64 // the job's sequence there
}

// ResultFilter chooses results. The zero value chooses all.
type ResultFilter struct {
	API   string
	Key   string // only with an API
	Job   string
	Since time.Time // only results stored at this time or later
	// Before chooses only results before this sequence; 0: all.
	Before uint64
}

func (f *ResultFilter) subject() string {
	switch {
	case f.API == "":
		return ResultSubjects.Below()
	case f.Key == "":
		return ResultSubjects.Below(f.API)
	}
	return ResultSubject(f.API, f.Key)
}

// NewestResults calls take with the results that f chooses, newest first and without their bodies. It stops when take
// fails; stream.ErrEnough stops it without an error. It looks at no more than most messages; 0 means no bound. It fails
// with ErrNoResults if there is no stream of results.
func NewestResults(ctx context.Context, js jetstream.JetStream, f ResultFilter, most int, take func(Result) error) (stream.Reach, error) {
	n := stream.Newest{JetStream: js, Stream: ResultsStream, Subject: f.subject(), Since: f.Since, Before: f.Before, Most: most, Bare: true}
	reach, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if r, ok := ParseResult(msg.Subject(), msg.Headers()); ok && (f.Job == "" || r.Job == f.Job) {
			r.Seq, r.Stored = meta.Sequence.Stream, meta.Timestamp
			r.Size, _ = strconv.Atoi(msg.Headers().Get("Nats-Msg-Size"))
			return take(r)
		}
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return reach, ErrNoResults
	}
	return reach, err
}

// ResultAt returns the result at a sequence, with its body. It asks the stream's leader. It returns nil if there is
// none.
func ResultAt(ctx context.Context, js jetstream.JetStream, seq uint64) (*Result, error) {
	m, err := stream.AskLeader(ctx, js.Conn(), ResultsStream, fmt.Sprintf(`{"seq":%d}`, seq))
	if err != nil || m == nil {
		return nil, err
	}
	return wholeResult(m)
}

// wholeResult reads a result with its body. It returns nil if the message is no result.
func wholeResult(m *stream.LeaderMessage) (*Result, error) {
	header, err := m.Header()
	if err != nil {
		return nil, fmt.Errorf("result %d: %w", m.Seq, err)
	}
	r, ok := ParseResult(m.Subject, header)
	if !ok {
		return nil, nil //nolint:nilnil // it is none
	}
	r.Seq, r.Stored, r.Body, r.Size = m.Seq, m.Time, m.Data, len(m.Data)
	return &r, nil
}

// nearResults bounds the results of a key that ResultFor reads to find the one of a call.
const nearResults = 200

// isFor reports whether a result is of the same job as a record.
func (r *Result) isFor(c *Record) bool {
	return r != nil && r.API == c.API && r.Key == c.Key && r.Job == c.Job && r.Queue == c.Stream && r.QueueSeq == c.Seq
}

// ResultFor returns the result that was stored for a recorded call, with its body; nil if it is not kept any more. It
// first looks at the sequence that the record names. If the result is not there, ResultFor searches the time from the
// end of the call until its record was stored, because the result was stored in that time. It first widens that time by
// 50 ms on both sides, and then by 5 s, because the clocks of the streams' leaders and of the replica that called may
// differ.
func ResultFor(ctx context.Context, js jetstream.JetStream, c *Record) (found *Result, err error) {
	if c.Result > 0 {
		of := func(m *stream.LeaderMessage) *Result {
			if r, err := wholeResult(m); err == nil && r.isFor(c) {
				return r
			}
			return nil
		}
		m, err := stream.MessageAt(ctx, js.Conn(), ResultsStream, c.Result, func(m *stream.LeaderMessage) bool { return of(m) != nil })
		if err != nil {
			return nil, err
		}
		if m != nil {
			if found = of(m); found != nil {
				return found, nil
			}
		}
	}
	for _, apart := range []time.Duration{50 * time.Millisecond, 5 * time.Second} {
		n := stream.Near{
			Conn: js.Conn(), Stream: ResultsStream, Subject: ResultSubject(c.API, c.Key), From: c.Ended.Add(-apart), To: c.Stored.Add(apart), Most: nearResults,
		}
		err = n.Read(ctx, func(m *stream.LeaderMessage) error {
			r, err := wholeResult(m)
			if err == nil && r.isFor(c) {
				found = r
				return stream.ErrEnough
			}
			return err
		})
		if found != nil || err != nil {
			break
		}
	}
	return found, err
}

// FollowResults calls take with the results that f chooses, with their bodies, as they come. It begins with those
// stored since f.Since, or if f.Since is zero, with those that are stored from now on. It blocks until ctx ends, which
// is no error, or take fails.
func FollowResults(ctx context.Context, js jetstream.JetStream, f ResultFilter, take func(Result) error) error {
	source, err := js.Stream(ctx, ResultsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNoResults
	} else if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	p := portion{stream: ResultsStream, subject: f.subject(), since: f.Since, after: source.CachedInfo().State.LastSeq}
	err = p.follow(ctx, js, func(msg jetstream.Msg) error {
		r, ok := ParseResult(msg.Subject(), msg.Headers())
		meta, err := msg.Metadata()
		if !ok || err != nil || f.Job != "" && r.Job != f.Job {
			return nil //nolint:nilerr // it is no result
		}
		r.Seq, r.Stored, r.Body, r.Size = meta.Sequence.Stream, meta.Timestamp, msg.Data(), len(msg.Data())
		return take(r)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ParseResult parses a message of the stream of results. ok is false if the message is not a result but a bar. A bar
// takes the place of a late result, so that the result cannot be stored.
func ParseResult(subject string, h nats.Header) (r Result, ok bool) {
	api, token, _ := strings.Cut(strings.TrimPrefix(subject, string(ResultSubjects)), ".")
	api, err := ingest.ParseToken(api)
	key, keyErr := ingest.ParseToken(token)
	if err != nil || keyErr != nil || !strings.HasPrefix(subject, string(ResultSubjects)) {
		return r, false
	}
	r = Result{API: api, Key: key, Job: h.Get(ingest.HeaderJobID), Header: h}
	r.Status, _ = strconv.Atoi(h.Get(HeaderStatus))
	r.Accepted, _ = time.Parse(time.RFC3339Nano, h.Get(HeaderAcceptedAt))
	r.Queue, r.QueueSeq, _, _ = ParseResultID(h.Get(ingest.HeaderMsgID))
	return r, true
}

// RecordsOf calls take with the records of a job, newest first. It looks at the newest records that f chooses, at no
// more than most of them; 0 means no bound. If f names a key, it reads only the records of that key. It fails with
// ErrNoLedger if there is no ledger.
func RecordsOf(ctx context.Context, js jetstream.JetStream, f Filter, job string, most int, take func(*Record) error) (stream.Reach, error) {
	n := stream.Newest{JetStream: js, Stream: CallsStream, Subject: f.subject(), Since: f.Since, Most: most}
	quoted := []byte(strconv.Quote(job))
	reach, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if plain(job) && !bytes.Contains(msg.Data(), quoted) {
			return nil // most records belong to other jobs and need not be parsed
		}
		if c, err := readRecord(msg, meta); err == nil && c.Job == job {
			return take(c)
		}
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return reach, ErrNoLedger
	}
	return reach, err
}

// RecordsNear calls take with the records of a key that were stored from f.Since until to, the oldest first, at most
// with most records. It stops when take fails; stream.ErrEnough stops it without an error. It is meant for a few
// records of a long ledger.
func RecordsNear(ctx context.Context, js jetstream.JetStream, f Filter, to time.Time, most int, take func(*Record) error) error {
	n := stream.Near{Conn: js.Conn(), Stream: CallsStream, Subject: f.subject(), From: f.Since, To: to, Most: most}
	return n.Read(ctx, func(m *stream.LeaderMessage) error {
		c, err := parse(m.Subject, m.Data)
		if err != nil {
			return nil //nolint:nilerr // a record that cannot be read tells nothing
		}
		c.Stored, c.At = m.Time, m.Seq
		return take(c)
	})
}

// plain reports whether JSON writes a text unchanged.
func plain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/ ", r)
	}) < 0
}
