package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/dispatcher/ledger"
)

// A partition may have been out of service for longer than the ledger's end reaches back: its stream had no leader, or no replica
// had its api, while others were called. What came of its last calls is then looked up by their keys.

// lookUp looks for a result and a record of a job that has an intent, where that is older than what has been read. It reports
// whether there is none: otherwise the job is brought to the end it had, or will be looked up again.
func (l *lane) lookUp(ctx context.Context, t *task) (none bool) {
	since := t.intendedAt.Add(-l.d.opts.Tail.OrDefault().Leeway)
	if t.intendedAt.IsZero() || l.d.tail.Knows(l.name, since) {
		return true
	}
	found, err := ledger.LookUp(ctx, l.d.opts.JetStream, ledger.Job{
		API: l.name, Key: t.line.key, ID: t.job.ID, Stream: t.line.part.bucket.Name(), Seq: t.seq, Accepted: t.accepted,
	}, since)
	if err != nil {
		l.log.Error("what came of a call could not be looked up; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, func() { l.settleLost(ctx, t) })
		return false
	}
	t.intendedAt = time.Time{}
	c := found.Record
	switch {
	case c != nil && c.Final:
		l.mu.Lock()
		t.doubt.recall(c.Billed, c.Idempotency)
		l.mu.Unlock()
		l.endAgain(ctx, t, c.Last())
	case found.Result != 0:
		l.endWithResult(ctx, t, found.Result)
	case c != nil && c.Call >= t.calls: // it was to be called again
		l.accountedFor(t)
		l.change(func(s *schedule) {
			t.lost, t.unseen, t.calls, t.attempts, t.deaths, t.failed = nil, false, c.Call, c.Attempt, 0, c.Detail
			t.doubt.recall(c.Billed, c.Idempotency)
			t.answeredAt = cmp.Or(c.Last().At, t.answeredAt)
			l.dropIntentsLocked(t)
			s.rest(t, max(c.NotBefore, 1))
		})
	default:
		return true
	}
	return false
}

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (l *lane) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	reached, err := ledger.ExtentOf(ctx, l.d.opts.JetStream)
	if err != nil || reached.Begins.IsZero() {
		return 0, err
	}
	begun := l.now().Add(ledger.ServerSkew - reached.Asked.Sub(reached.Begins))
	if free := begun.Add(drain); free > l.now() {
		l.mu.Lock()
		told := l.shortTold
		l.shortTold = true
		l.mu.Unlock()
		if !told {
			l.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
// drain is how long its bucket takes to empty.
func (l *lane) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, l.d.opts.JetStream, l.name, key)
	if err != nil {
		return 0, err
	}
	if c == nil {
		return l.notRecorded(ctx, drain)
	}
	switch {
	case l.d.owner == nil:
		return c.TAT, nil
	case known != 0 && c.Instance == l.d.opts.Instance:
		return known, nil
	}
	reached, err := ledger.ExtentOf(ctx, l.d.opts.JetStream)
	if err != nil {
		return 0, err
	}
	return l.inherit(c, c.Stored, reached.Asked), nil
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }
