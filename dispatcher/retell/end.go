package retell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const lettersStream = deadletter.Stream

// isAskedAlready reports whether the job waits in its queue and itself names the duplicate's reply subject. Then the
// owner of its partition reports its end there.
func (t *Teller) isAskedAlready(ctx context.Context, d *Duplicate) (bool, error) {
	if d.Seq == 0 {
		return false, nil
	}
	queued, err := stream.AskLeader(ctx, t.JetStream.Conn(), d.Stream, fmt.Sprintf(`{"seq":%d}`, d.Seq))
	if err != nil || queued == nil || len(queued.Headers) == 0 {
		return false, err
	}
	header, err := nats.DecodeHeadersMsg(queued.Headers)
	if err != nil {
		return false, fmt.Errorf("message %d of %s: %w", d.Seq, d.Stream, err)
	}
	for name, values := range header {
		if strings.EqualFold(name, ingest.HeaderReplyTo) && len(values) == 1 {
			return values[0] == d.ReplyTo && header.Get(ingest.HeaderJobID) == d.Job, nil
		}
	}
	return false, nil
}

// newestEnd returns the newest stored end of the duplicate's job, nil if there is none.
func (t *Teller) newestEnd(ctx context.Context, d *Duplicate) (*nats.Msg, error) {
	var result, letterAt time.Time
	var at uint64
	filter := ledger.ResultFilter{API: d.API, Key: d.Key, Job: d.Job}
	_, err := ledger.NewestResults(ctx, t.JetStream, filter, mostRead, func(r ledger.Result) error {
		if !d.owns(r.Queue, r.QueueSeq) {
			return nil
		}
		at, result = r.Seq, r.Stored
		return stream.ErrEnough
	})
	if err != nil && !errors.Is(err, ledger.ErrNoResults) {
		return nil, err
	}
	var notice *nats.Msg
	letters := deadletter.Filter{API: d.API, Key: d.Key, Job: d.Job}
	_, err = deadletter.NewestLetters(ctx, t.JetStream, letters, mostRead, func(k deadletter.Kept) error {
		if !d.endsIn(&k) {
			return nil
		}
		notice, letterAt = k.Notice(), k.Stored
		return stream.ErrEnough
	})
	if err != nil && !errors.Is(err, deadletter.ErrNoStream) {
		return nil, err
	}
	if at == 0 || notice != nil && letterAt.After(result) {
		return notice, nil
	}
	return t.resultAt(ctx, at)
}

// owns reports whether an end belongs to the duplicate's job. The ended job must have been queued at the duplicate's
// place, or behind it after a redrive. If the duplicate's place is not known, every end belongs to its job.
func (d *Duplicate) owns(queued string, seq uint64) bool {
	return d.Seq == 0 || queued == d.Stream && seq >= d.Seq
}

// endsIn reports whether a letter is the end of the duplicate's job. The letter of a refusal is no end.
func (d *Duplicate) endsIn(k *deadletter.Kept) bool {
	queued, seq, _, ok := ledger.ParseOrigin(k.Origin)
	return ok && d.owns(queued, seq)
}

// resultAt returns the result at a sequence as a reply, nil if it is gone.
func (t *Teller) resultAt(ctx context.Context, at uint64) (*nats.Msg, error) {
	r, err := ledger.ResultAt(ctx, t.JetStream, at)
	if err != nil || r == nil {
		return nil, err
	}
	r.Header.Del(ingest.HeaderMsgID)
	return &nats.Msg{Header: r.Header, Data: r.Body}, nil
}

// takeResult reports a new result to the duplicates that wait for it. msg has no body.
func (t *Teller) takeResult(ctx context.Context, msg jetstream.Msg) error {
	r, ok := ledger.ParseResult(msg.Subject(), msg.Headers())
	if !ok {
		return nil // a bar against a late result
	}
	waiting := t.waitingFor(r.API, r.Key, r.Job, func(d *Duplicate) bool { return d.owns(r.Queue, r.QueueSeq) })
	if len(waiting) == 0 {
		return nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read the metadata of a result: %w", err)
	}
	end, err := t.resultAt(ctx, meta.Sequence.Stream)
	if err != nil || end == nil {
		return err
	}
	for _, w := range waiting {
		t.tell(w, end)
	}
	return nil
}

// takeLetter reports a new letter to the duplicates that wait for it.
func (t *Teller) takeLetter(_ context.Context, msg jetstream.Msg) error {
	k, ok := deadletter.ReadKept(msg)
	if !ok {
		return nil
	}
	for _, w := range t.waitingFor(k.API, k.Key, k.JobID, func(d *Duplicate) bool { return d.endsIn(&k) }) {
		t.tell(w, k.Notice())
	}
	return nil
}

// waitingFor returns the duplicates that wait for an end of a job. theirs reports whether the end is that of a
// duplicate's job.
func (t *Teller) waitingFor(api, key, id string, theirs func(*Duplicate) bool) (found []*waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.jobs[job{api, key, id}] {
		if theirs(&w.Duplicate) {
			found = append(found, w)
		}
	}
	return found
}
