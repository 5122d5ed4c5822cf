package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// endKind is the kind of a job's end.
type endKind string

// The kinds of ends. A done job has a result, a dead job has a letter.
const (
	done endKind = "done"
	dead endKind = "dead"
)

func endKinds() []endKind { return []endKind{done, dead} }

// stream returns the stream with the ends of this kind. Each message is one end.
func (k endKind) stream() string {
	if k == dead {
		return deadletter.Stream
	}
	return ledger.ResultsStream
}

// subject returns the subject filter for an api's ends of this kind.
func (k endKind) subject(api string) string {
	if k == dead {
		return deadletter.Subjects.Below(api)
	}
	return ledger.ResultSubjects.Below(api)
}

// is reports whether a message of the stream is an end of one of the api's jobs. An imported letter is not such an end,
// because its job ended earlier, perhaps elsewhere.
func (k endKind) is(api string, msg jetstream.Msg) bool {
	if k == dead {
		letter, ok := deadletter.ReadKept(msg)
		return ok && letter.API == api && letter.Imported.IsZero()
	}
	result, ok := ledger.ParseResult(msg.Subject(), msg.Headers())
	return ok && result.API == api && result.Job != "" && result.Header.Get(ledger.HeaderOutcome) == ledger.Done
}

// ends is the feed of one kind of ends for an api's callback. Each load is one end.
type ends struct {
	*sending
	api  string
	kind endKind
}

// collect implements feed.
func (e *ends) collect(msg jetstream.Msg, meta *jetstream.MsgMetadata) (c collected) {
	if e.kind.is(e.api, msg) {
		c = collected{held: true, begins: true, full: &endParcel{ends: e, seq: meta.Sequence.Stream, stored: meta.Timestamp, got: time.Now()}}
	}
	return c
}

// complete implements feed. No end is ever incomplete.
func (e *ends) complete() load { return nil }

// resume implements feed.
func (e *ends) resume(open underWay) load {
	return &endParcel{ends: e, seq: open.Seq, stored: open.At, got: time.Now()}
}

// lost implements feed.
func (e *ends) lost(n uint64) {
	if e.kind == dead {
		e.count(removed, int(n))
		e.log.Info("letters were redriven, purged or expired before the callback's receiver accepted them", "count", n)
		return
	}
	e.count(dropped, int(n))
	e.health.gaveUp(time.Now(), int(n), 0, "results were removed before they could be posted")
	e.health.forgetUpTo(e.upTo)
	e.log.Warn("results were removed before the callback's receiver accepted them: it was down for longer than results are kept", "count", n)
}

// endParcel is one end. Only its sequence stays in memory, and each try reads the end again. So weir does not post a
// letter that was redriven or purged meanwhile, and the bodies for a receiver that is down take no memory.
type endParcel struct {
	*ends
	seq    uint64
	stored time.Time // when the end was stored, by the server's clock
	got    time.Time // when this sending got the end, by this machine's monotonic clock
	read   *keptEnd  // the end as the last try read it, without its body
}

// deliver implements load.
func (p *endParcel) deliver(ctx context.Context, at time.Time) error {
	return p.sending.deliver(ctx, p, at)
}

// render implements parcel.
func (p *endParcel) render(ctx context.Context, _ int) (message, error) {
	kept, err := p.fetch(ctx)
	switch {
	case err != nil:
		return message{}, err
	case kept == nil && p.kind == dead:
		return message{}, &givenUp{removed, "its letter was redriven or purged, or was too old"}
	case kept == nil:
		return message{}, &givenUp{dropped, "its result was removed: results are not kept longer"}
	}
	p.read, p.stored = kept, kept.stored
	m := message{id: messageID(kept.id), kind: "application/json", body: kept.post}
	kept.post = nil
	return m, nil
}

// until implements parcel.
func (p *endParcel) until() time.Time {
	if to := p.configuredCallback(p.api); to != nil {
		return p.stored.Add(to.For)
	}
	return time.Time{}
}

// size implements parcel.
func (p *endParcel) size() int { return 1 }

// sequence implements parcel.
func (p *endParcel) sequence() uint64 { return p.seq }

// named implements parcel.
func (p *endParcel) named() []any {
	if p.read == nil {
		return []any{"seq", p.seq}
	}
	return []any{"key", p.read.key, "job_id", p.read.job, "seq", p.seq}
}

// lagsFor and lagsStep bound a wait for a stream's leader. A replica of the stream that is ahead of the leader for a
// moment may deliver an end that the leader does not have yet.
const (
	lagsFor  = time.Minute // counts from when a sending got the end
	lagsStep = 50 * time.Millisecond
)

// fetch reads the end from the stream's leader. It returns nil if the end is gone. If the leader has no such message,
// that counts only if the leader has come as far as the end, or after lagsFor. At most readsAtOnce calls of fetch run
// at a time.
func (p *endParcel) fetch(ctx context.Context) (*keptEnd, error) {
	select {
	case p.reads <- struct{}{}:
		defer func() { <-p.reads }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	for {
		kept, err := p.ask(ctx)
		if kept != nil || err != nil || time.Since(p.got) > lagsFor {
			return kept, err
		}
		source, err := p.JetStream.Stream(ctx, p.kind.stream())
		if err != nil {
			return nil, err
		}
		if source.CachedInfo().State.LastSeq >= p.seq {
			return p.ask(ctx) // the end may have come between the two requests
		}
		if !stream.Sleep(ctx, lagsStep) {
			return nil, fmt.Errorf("the leader of %s does not have message %d yet", p.kind.stream(), p.seq)
		}
	}
}

// ask asks the stream's leader for the end. It returns nil if the leader has no such end.
func (p *endParcel) ask(ctx context.Context) (*keptEnd, error) {
	if p.kind == dead {
		b, err := deadletter.OpenBrowser(ctx, p.JetStream)
		if err != nil {
			return nil, err
		}
		k, err := b.Get(ctx, p.seq)
		switch {
		case errors.Is(err, deadletter.ErrNoLetter), err == nil && k.API != p.api:
			return nil, nil //nolint:nilnil // it is gone
		case err != nil:
			return nil, err
		}
		return endOfLetter(&k), nil
	}
	r, err := ledger.ResultAt(ctx, p.JetStream, p.seq)
	if err != nil {
		return nil, fmt.Errorf("result %d: %w", p.seq, err)
	}
	if r == nil || r.API != p.api {
		return nil, nil //nolint:nilnil // it is gone
	}
	return endOfResult(r), nil
}
