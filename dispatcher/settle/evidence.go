package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// evidence looks up what the servers stored about the calls of an api's jobs. Its methods retry until the servers
// answer; ok is false only if the worker stops first, and then the next start finds the job again. It is safe for
// concurrent use.
//
// Recent data has been read with the ledger's end. But a partition may have been out of service for longer than the
// part that was read: its stream had no leader, or no replica had its api, while other partitions were called. Then
// evidence looks up the partition's last calls by their keys.
type evidence struct {
	api    string
	js     jetstream.JetStream
	tail   *ledger.Tail
	leeway time.Duration // allowed between the clocks of leaders, and between a result and its record
	log    *slog.Logger
}

func evidenceOf(e *lane.Env, api string, log *slog.Logger) evidence {
	return evidence{api: api, js: e.JS, tail: e.Tail, leeway: e.Leeway, log: log}
}

// Of returns how the ledger names a job. The job's message must be loaded.
func (e *evidence) Of(j *lane.Job) ledger.Job {
	return ledger.Job{API: e.api, Key: j.Queue.Key, ID: j.Message.ID, Stream: j.Part.Bucket.Name(), Seq: j.Seq, Accepted: j.Accepted}
}

// read calls ask until it succeeds. It reports false if ctx ends first.
func (e *evidence) read(ctx context.Context, what string, of ledger.Job, ask func() error) (ok bool) {
	for {
		err := ask()
		if err == nil {
			return true
		}
		e.log.Error("could not read what became of a call; trying again", "what", what, "key", of.Key, "seq", of.Seq, "err", err)
		if !stream.Sleep(ctx, lane.LoadRetry) {
			return false
		}
	}
}

// IsRead reports whether what was read with the ledger's end includes everything that a call may have left that was
// intended at a time.
func (e *evidence) IsRead(intended time.Time) bool { return e.tail.Knows(e.api, e.since(intended)) }

// since returns the earliest time stamp that records and results may have of a call whose intent was stored at a time.
func (e *evidence) since(stored time.Time) time.Time { return stored.Add(-e.leeway) }

// Traces returns a job's newest record and its result, if a call that was intended at a time may have left them.
func (e *evidence) Traces(ctx context.Context, of ledger.Job, intended time.Time) (found ledger.Traces, ok bool) {
	ok = e.read(ctx, "records and results of a key", of, func() (err error) {
		found, err = ledger.LookUp(ctx, e.js, of, e.since(intended))
		return err
	})
	return found, ok
}

// record returns the job's record at a sequence of the ledger. It returns nil if the ledger has dropped the record, if
// it is unreadable or if it is another job's.
func (e *evidence) record(ctx context.Context, of ledger.Job, at uint64) (c *ledger.Record, ok bool) {
	ok = e.read(ctx, "a record", of, func() (err error) {
		if c, err = ledger.At(ctx, e.js, at); errors.Is(err, ledger.ErrUnreadable) {
			return nil
		}
		return err
	})
	if c != nil && (c.Stream != of.Stream || c.Seq != of.Seq) {
		c = nil
	}
	return c, ok
}

// Result asks the leader of the results for the message at a sequence. It returns nil if there is none, or if it is
// another job's. If a bar against a late result (resultbar.go) has the result's place, Result returns the bar.
func (e *evidence) Result(ctx context.Context, of ledger.Job, at uint64) (msg *nats.Msg, ok bool) {
	var stored *stream.LeaderMessage
	ok = e.read(ctx, "a result", of, func() (err error) {
		stored, err = stream.AskLeader(ctx, e.js.Conn(), ledger.ResultsStream, fmt.Sprintf(`{"seq":%d}`, at))
		return err
	})
	if stored == nil {
		return nil, ok
	}
	msg = &nats.Msg{Subject: stored.Subject, Data: stored.Data}
	if stored.Subject == FenceSubject {
		return msg, ok
	}
	var err error
	if msg.Header, err = nats.DecodeHeadersMsg(stored.Headers); err != nil || msg.Header.Get(ingest.HeaderJobID) != of.ID {
		return nil, ok // of a job in an earlier stream of this name
	}
	return msg, ok
}

// answer returns what the api answered to a job's call, from the record at a sequence of the ledger. It returns nil if
// the ledger has dropped the record.
func (e *evidence) answer(ctx context.Context, of ledger.Job, at uint64) (a *deadletter.Answer, ok bool) {
	c, ok := e.record(ctx, of, at)
	if !ok || c == nil || c.Status == 0 {
		return nil, ok
	}
	if c.Answer == nil {
		return &deadletter.Answer{Status: c.Status, Cut: true}, true // of a pushback, whose body is not stored
	}
	return c.Answer, true
}
