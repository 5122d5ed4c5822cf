package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// evidence is what the servers have of the calls of an api's jobs. Each question blocks until they have answered; ok is false where the worker
// stops before, and then the next start finds the job again. It is safe for concurrent use.
//
// What was stored lately has been read with the ledger's end. But a partition may have been out of service for longer than that reaches back:
// its stream had no leader, or no replica had its api, while others were called. What came of its last calls is then looked up by their keys.
type evidence struct {
	api    string
	js     jetstream.JetStream
	tail   *ledger.Tail
	leeway time.Duration // between the clocks of leaders, and between a result and its record
	log    *slog.Logger
}

func (d *Dispatcher) evidenceOf(api string, log *slog.Logger) evidence {
	return evidence{api: api, js: d.opts.JetStream, tail: d.tail, leeway: d.opts.Tail.OrDefault().Leeway, log: log}
}

// of names a job whose message is loaded.
func (e *evidence) of(j *job) ledger.Job {
	return ledger.Job{API: e.api, Key: j.Queue.Key, ID: j.message.ID, Stream: j.part.bucket.Name(), Seq: j.Seq, Accepted: j.accepted}
}

// read asks until there is an answer.
func (e *evidence) read(ctx context.Context, what string, of ledger.Job, ask func() error) (ok bool) {
	for {
		err := ask()
		if err == nil {
			return true
		}
		e.log.Error("what came of a call could not be read; trying again", "what", what, "key", of.Key, "seq", of.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return false
		}
	}
}

// isRead reports whether all that may have come of an intended call has been read with the ledger's end.
func (e *evidence) isRead(intended time.Time) bool { return e.tail.Knows(e.api, e.since(intended)) }

// since is from when on there may be anything that belongs to what was stored at a time.
func (e *evidence) since(stored time.Time) time.Time { return stored.Add(-e.leeway) }

// traces are a job's records and its result, as far as they may have come of a call that was intended at a time.
func (e *evidence) traces(ctx context.Context, of ledger.Job, intended time.Time) (found ledger.Traces, ok bool) {
	ok = e.read(ctx, "records and results of a key", of, func() (err error) {
		found, err = ledger.LookUp(ctx, e.js, of, e.since(intended))
		return err
	})
	return found, ok
}

// record is a record of a job, nil where the ledger has let go of it, or nobody can read it.
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

// result is the message at a sequence of the results, as their leader has it, if it is the job's; else it is nil. What keeps a result out
// has the result's place, and is given too.
func (e *evidence) result(ctx context.Context, of ledger.Job, at uint64) (msg *nats.Msg, ok bool) {
	var stored *stream.LeaderMessage
	ok = e.read(ctx, "a result", of, func() (err error) {
		stored, err = stream.AskLeader(ctx, e.js.Conn(), ledger.ResultsStream, fmt.Sprintf(`{"seq":%d}`, at))
		return err
	})
	if stored == nil {
		return nil, ok
	}
	msg = &nats.Msg{Subject: stored.Subject, Data: stored.Data}
	if stored.Subject == fenceSubject {
		return msg, ok
	}
	var err error
	if msg.Header, err = nats.DecodeHeadersMsg(stored.Headers); err != nil || msg.Header.Get(ingest.HeaderJobID) != of.ID {
		return nil, ok // another job's, of a stream that is gone
	}
	return msg, ok
}

// answer is what the api answered to a job's call, by the record at a place of the ledger; nil where the ledger has let go of that.
func (e *evidence) answer(ctx context.Context, of ledger.Job, at uint64) (a *deadletter.Answer, ok bool) {
	c, ok := e.record(ctx, of, at)
	if !ok || c == nil || c.Status == 0 {
		return nil, ok
	}
	if c.Answer == nil {
		return &deadletter.Answer{Status: c.Status, Cut: true}, true // a pushback's, of which the body is not kept
	}
	return c.Answer, true
}
