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
// answer; ok is false only if the worker stops first. The next start then finds the job again. evidence is safe for
// concurrent use.
//
// Recent data was read with the ledger's end. But a partition may have been out of service for longer than the part of
// the ledger that was read, while other partitions were called: its stream had no leader, or no replica had its api.
// For such a partition, evidence looks up the last calls by their keys.
type evidence struct {
	api    string
	js     jetstream.JetStream
	tail   *ledger.Tail
	leeway time.Duration // allowed difference between the clocks of leaders, and between a result and its record
	log    *slog.Logger
}

func evidenceOf(e *lane.Env, api string, log *slog.Logger) evidence {
	return evidence{api: api, js: e.JS, tail: e.Tail, leeway: e.Leeway, log: log}
}

// Of returns the ledger's name of a job. The job's message must be loaded.
func (e *evidence) Of(j *lane.Job) ledger.Job {
	return ledger.Job{API: e.api, Key: j.Queue.Key, ID: j.Message.ID, Stream: j.Part.Bucket.Name(), Seq: j.Seq, Accepted: j.Accepted}
}

// read calls ask until it succeeds. It returns false if ctx ends first.
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

// IsRead reports whether the part of the ledger that was read includes everything that a call may have left. intended
// is when the call's intent was stored.
func (e *evidence) IsRead(intended time.Time) bool { return e.tail.Knows(e.api, e.since(intended)) }

// since returns the earliest time stamp that a call's records and results may have. stored is when the call's intent
// was stored.
func (e *evidence) since(stored time.Time) time.Time { return stored.Add(-e.leeway) }

// Traces looks up a job's newest record and its result. intended is when the intent of the job's call was stored.
func (e *evidence) Traces(ctx context.Context, of ledger.Job, intended time.Time) (found ledger.Traces, ok bool) {
	ok = e.read(ctx, "records and results of a key", of, func() (err error) {
		found, err = ledger.LookUp(ctx, e.js, of, e.since(intended))
		return err
	})
	return found, ok
}

// record returns the job's record at a sequence of the ledger. It returns nil if the ledger has dropped the record, if
// the record is unreadable, or if it is another job's.
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

// Result asks the leader of the results for the message at a sequence. It returns nil if there is none, or if the
// message is another job's. If the message is a bar against a late result (resultbar.go), Result returns the bar.
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
		return nil, ok // of a job in an earlier stream with this name
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
		return &deadletter.Answer{Status: c.Status, Cut: true}, true // it is a pushback, whose body is not stored
	}
	return c.Answer, true
}
