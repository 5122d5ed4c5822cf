package dispatcher

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"weir/bucket/stream"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// barSubject is where the stream of results takes what keeps a result out. It is no result's, so that nobody who reads
// results takes it for one.
const barSubject = "weir.o.results"

// bar keeps a result of the job from being stored any more, and then tells where one stands that was stored before, 0 for
// none. One may be on its way still, sent by a replica that had the right to and lost it while its connection stalled. What
// bars it carries the result's id, which the stream takes once: for two minutes.
func (l *lane) bar(ctx context.Context, t *task, then func(at uint64)) {
	var at uint64
	msg := &nats.Msg{Subject: barSubject, Header: nats.Header{ingest.HeaderMsgID: {resultMsgID(t)}}}
	l.persist(ctx, "bar against a late result", t, func(done func(error)) {
		l.d.results.WriteWhile(t.line.part.mayCall, msg, func(seq uint64, err error) { at = seq; done(err) })
	}, func() {
		l.running.Go(func() { l.barred(ctx, t, at, then) })
	})
}

// barred looks what has the id of a job's result.
func (l *lane) barred(ctx context.Context, t *task, at uint64, then func(at uint64)) {
	msg, err := stream.AskLeader(ctx, l.d.opts.Conn, ledger.ResultsStream, fmt.Sprintf(`{"seq":%d}`, at))
	if err != nil {
		l.log.Error("results could not be read; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, func() { l.barred(ctx, t, at, then) })
		return
	}
	header := nats.Header{}
	if msg != nil {
		header, err = nats.DecodeHeadersMsg(msg.Headers)
	}
	switch {
	case msg == nil: // what barred it before has been deleted
		at = 0
	case msg.Subject == barSubject:
		// The stream knows the id all the same. Where it is not deleted it says nothing, and goes with the results' age.
		if err := l.d.opts.Conn.Publish("$JS.API.STREAM.MSG.DELETE."+ledger.ResultsStream, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, at)); err != nil {
			l.log.Warn("what bars a late result stays among the results", "seq", at, "err", err)
		}
		at = 0
	case err != nil || header.Get(ingest.HeaderJobID) != t.job.ID: // another job's, of a stream that is gone
		at = 0
	}
	then(at)
}
