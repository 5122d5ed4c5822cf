package ledger

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Job names the job that LookUp looks up. All fields are required.
type Job struct {
	API, Key, ID string
	Stream       string        // the stream in which it is queued
	Seq          uint64        // its sequence there
	Accepted     bucket.Micros // when its stream took it
}

// Traces are what is stored about a job's calls.
type Traces struct {
	Record    *Record // the newest record, nil for none
	Result    uint64  // sequence of its result, 0 for none
	Reused    bool    // the result is the answer of another job
	Inquiries int     // how often the api was asked about it
}

// lookUpTimeout bounds the time in which one stream is read.
const lookUpTimeout = time.Minute

// LookUp reads what the ledger and the results have stored for the job's key since a time, and returns what belongs to
// the job. It blocks for at most two minutes, or until ctx ends.
func LookUp(ctx context.Context, js jetstream.JetStream, j Job, since time.Time) (found Traces, err error) {
	records := portion{stream: CallsStream, subject: (&Record{API: j.API, Key: j.Key}).Subject(), since: since}
	err = records.lookThrough(ctx, js, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		c, err := readRecord(msg, meta)
		mine := err == nil && c.Stream == j.Stream && c.Seq == j.Seq && bucket.MicrosOf(c.Accepted) == j.Accepted
		switch {
		case mine && c.Inquiry != "":
			found.Inquiries++
		case mine && (found.Record == nil || c.Call >= found.Record.Call):
			found.Record = c
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("ledger: %w", err)
	}
	result, err := resultOf(ctx, js, j, since)
	found.Result, found.Reused = result.At, result.Reused
	return found, err
}

// resultOf returns the place of the job's result, if the result was stored since a time; the place's sequence is 0 for
// none. It reads the results of the job's key without their bodies. It blocks for at most one minute, or until ctx
// ends.
func resultOf(ctx context.Context, js jetstream.JetStream, j Job, since time.Time) (of StoredResult, err error) {
	results := portion{stream: ResultsStream, subject: ResultSubject(j.API, j.Key), since: since, bare: true}
	err = results.lookThrough(ctx, js, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		source, seq, r, ok := readResult(msg, meta)
		if ok && source == j.Stream && seq == j.Seq && r.is(j.ID, j.Accepted) {
			of = r
		}
		return nil
	})
	if err != nil {
		return StoredResult{}, fmt.Errorf("results: %w", err)
	}
	return of, nil
}

func (p *portion) lookThrough(ctx context.Context, js jetstream.JetStream, take func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return p.readAll(ctx, js, take)
}

// Newest returns a key's newest record, nil if there is none. It asks the ledger's leader. It fails with ErrUnreadable
// if the record cannot be read. It blocks for at most thirty seconds.
func Newest(ctx context.Context, js jetstream.JetStream, api, key string) (*Record, error) {
	subject := (&Record{API: api, Key: key}).Subject()
	c, err := ask(ctx, js, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err != nil || c != nil {
		return c, err
	}
	if _, readable, err := stream.End(ctx, js.Conn(), CallsStream, subject); err != nil || readable {
		return nil, err
	}
	return nil, fmt.Errorf("ledger: %w: the newest of a key", ErrUnreadable)
}

// At returns the record at a sequence of the ledger, nil if the ledger has removed it. It asks the ledger's leader. It
// fails with ErrUnreadable if the record cannot be read. It blocks for at most ten seconds.
func At(ctx context.Context, js jetstream.JetStream, seq uint64) (*Record, error) {
	return ask(ctx, js, fmt.Sprintf(`{"seq":%d}`, seq))
}

// OfJob returns the record at a sequence of the ledger if the record is of the job with this id. It returns nil if the
// record is of another job, cannot be read, or was removed from the ledger. It blocks for at most twenty seconds.
func OfJob(ctx context.Context, js jetstream.JetStream, seq uint64, job string) (*Record, error) {
	of := func(m *stream.LeaderMessage) *Record {
		c, err := parse(m.Subject, m.Data)
		if err != nil || c.Job != job {
			return nil
		}
		c.Stored, c.At = m.Time, m.Seq
		return c
	}
	m, err := stream.MessageAt(ctx, js.Conn(), CallsStream, seq, func(m *stream.LeaderMessage) bool { return of(m) != nil })
	if err != nil || m == nil {
		return nil, err
	}
	return of(m), nil
}

func ask(ctx context.Context, js jetstream.JetStream, request string) (*Record, error) {
	msg, err := stream.AskLeader(ctx, js.Conn(), CallsStream, request)
	if err != nil || msg == nil {
		return nil, err
	}
	c, err := parse(msg.Subject, msg.Data)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w: number %d", err, msg.Seq)
	}
	c.Stored, c.At = msg.Time, msg.Seq
	return c, nil
}
