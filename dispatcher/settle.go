package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
)

// persistRetry is how long persist waits after a failed write. Each write has a message id, so that the stream stores
// it once.
const persistRetry = time.Second

// settler brings jobs to their ends: it stores outcomes, results, records, marks and letters, and then has the job
// deleted or lets it wait.
type settler struct {
	*lane
	memory     *memory
	notes      *holdNotes
	evidence   evidence
	unrecorded unrecordedCalls
	called     func(answered bool) // called under the lock when a call has ended
}

func newSettler(l *lane, notes *holdNotes, called func(answered bool)) *settler {
	return &settler{lane: l, memory: &memory{l}, notes: notes, evidence: evidenceOf(l.env, l.name, l.log), called: called}
}

// settle brings a called job to exactly one of: done, buried, or waiting for its next call. It stores what is known of
// the call before it deletes the job or lets it wait.
func (w *settler) settle(ctx context.Context, j *job, r httpcall.Response) {
	w.conclude(ctx, j, r, j.crashed(httpcall.Judge(j.terms.api, r, time.Now())))
}

// conclude settles a called job by an outcome that is already judged.
func (w *settler) conclude(ctx context.Context, j *job, r httpcall.Response, out httpcall.Outcome) {
	api := j.terms.api
	e := schedule.CallEnd{
		Again: out.Verdict == httpcall.Again, PushedBack: out.Verdict == httpcall.Pushback, Denied: out.Verdict == httpcall.Denied, Fault: out.Fault,
		Sent: r.Sent, After: out.After, Hold: out.Hold, Detail: out.Detail, Mend: out.Mend, Now: w.now(), Jitter: rand.Float64(),
	}
	e.Started = e.Now.Add(-max(0, time.Since(r.Started)))
	w.mu.Lock()
	f := w.s.OnCallEnd(j.Job, e)
	w.called(r.Status != 0)
	w.notes.dropDenialsLocked()
	if out.Counts() && !f.Free {
		j.attempts++
	}
	j.doubt.add(out.Billed, j.calledUnder())
	j.Deaths, j.status, j.lastCall = 0, cmp.Or(r.Status, j.status), cmp.Or(j.lastCallOf(r), j.lastCall)
	exhausted := out.Verdict == httpcall.Again && j.attempts >= api.Retry.Attempts
	w.mu.Unlock()
	if exhausted {
		out.Verdict, out.Reason = httpcall.Dead, deadletter.Exhausted
		out.Detail = fmt.Sprintf("gave up after %d attempts, the last: %s", j.attempts, out.Detail)
	}
	w.metrics.calls.count(out.Name())
	if f.First {
		w.logOf(j).Warn("a call failed", "attempt", j.attempts, "reason", out.Detail)
	}
	w.notes.announceHolds(f.News)
	w.notes.keepHold(j.part, f.Hold)
	if f.Denied {
		w.notes.keepDenial(f.News[0].Until, f.News[0].Why)
	}
	if w.log.Enabled(ctx, slog.LevelDebug) {
		w.logOf(j).Debug("call ended", "attempt", j.attempts, "status", r.Status, "outcome", out.Name(), "reason", out.Detail)
	}

	switch out.Verdict {
	case httpcall.Delivered:
		w.keepResult(ctx, j, r, out)
	case httpcall.Dead:
		w.bury(ctx, j, out.Reason, out.Detail, w.record(j, r, out))
	case httpcall.Again:
		wait := schedule.Backoff(api.Retry.Min, api.Retry.Max, max(j.attempts, 1), rand.Float64())
		w.again(ctx, j, w.record(j, r, out), max(w.now().Add(wait), f.NotBefore))
	case httpcall.Pushback, httpcall.Denied:
		w.again(ctx, j, w.record(j, r, out), f.NotBefore)
	default:
		panic(fmt.Sprintf("dispatcher: unknown verdict %d", out.Verdict)) // judge has a bug
	}
}

// keepResult stores the result, sends it to the producer's reply subject, stores the ledger's record, and has the job
// deleted. Each step starts only when the one before it is durable, so that the record proves that the result is stored
// and the reply was sent. After a crash before the record, recovery finds the result and writes the record
// (loneresult.go).
func (w *settler) keepResult(ctx context.Context, j *job, r httpcall.Response, out httpcall.Outcome) {
	if fault.Planted(fault.DeleteFirst) {
		j.part.bucket.Finish(j.Queue.Key, j.Seq)
		<-time.After(100 * time.Millisecond)
	}
	fault.Pass(fault.CallAnswered)
	msg := w.result(j, r)
	stored, ok := w.storeResult(ctx, j, msg)
	if !ok {
		return
	}
	if stored.Duplicate {
		switch open, ok := (resultBar{w, j}).isOpen(ctx, stored.Seq); {
		case !ok:
			return
		case !open:
			out := barred(r.Status)
			w.bury(ctx, j, out.Reason, out.Detail, w.record(j, r, out))
			return
		}
	}
	fault.Pass(fault.ResultStored)
	if j.message.ReplyTo != "" {
		w.env.reply(j.message.ReplyTo, msg)
	}
	if w.keepRecord(ctx, j, w.record(j, r, out)) {
		w.traceEnd(j, nil)
		w.finish(j, ledger.Done)
	}
}

// storeResult stores a result and returns the stream's answer. It blocks until the result is stored; ok is false if
// persist gave the job up. If the result is too large for its stream, storeResult stores less of it: the call is paid
// for, and its job must not block all other jobs.
func (w *settler) storeResult(ctx context.Context, j *job, msg *nats.Msg) (stored stream.Answer, ok bool) {
	ok = w.persist(ctx, "result", j, func() error {
		for {
			stored = w.env.results.WriteWhile(j.part.mayCall, msg)
			err := stored.Err
			size := msg.Size()
			if !errors.Is(err, stream.ErrTooLarge) || !ledger.Lessen(msg) {
				return err
			}
			w.logOf(j).Warn("a result is larger than its stream takes; less of it is kept", "bytes", size, "err", err)
		}
	})
	return stored, ok
}

// bury stores the ledger's record c, then the letter with its event, and has the job deleted. If there was no call, c
// is nil and bury stores the mark of the job's end instead. The record or the mark comes first because the letter can
// be written again from it and the job: after a crash between the two it is known whether the call was made.
func (w *settler) bury(ctx context.Context, j *job, reason deadletter.Reason, detail string, c *ledger.Record) {
	status, detail := j.status, ledger.Clip(detail, ledger.MaxDetail)
	var answer *deadletter.Answer
	if c != nil {
		status, answer = c.Status, c.Answer
	}
	letter := w.letter(j, reason, detail, status, j.doubt.known())
	letter.Answer = answer
	w.trace(j)
	w.logOf(j).Info("job buried", "reason", letter.Reason, "detail", letter.Detail, "billed", letter.Billed)
	var noted bool
	if c == nil {
		noted = w.keepEnd(ctx, j, letter)
	} else {
		noted = w.keepRecord(ctx, j, c)
	}
	if noted {
		w.buryLetter(ctx, j, letter)
	}
}

// keepEnd stores the mark that a job becomes a letter without a call, and reports whether the mark is stored. Without
// it, a crash before the job's deletion could undo the decision: the reason may not apply any more, and the ledger has
// no record of it.
func (w *settler) keepEnd(ctx context.Context, j *job, letter *deadletter.Letter) bool {
	mark := queue.RetryMark{
		Seq: j.Seq, Calls: j.Calls, Attempts: j.attempts, Billed: string(j.doubt.billed), Ends: string(letter.Reason), Reason: letter.Detail,
		Idempotency: j.doubt.identity, Status: j.status, Answered: j.answeredAt, Accepted: j.accepted, KeySum: queue.KeySum(j.Queue.Key),
	}
	seq, ok := w.keepMark(ctx, "end", j, mark)
	if ok {
		w.mu.Lock()
		j.ends = append(j.ends, seq)
		w.mu.Unlock()
	}
	return ok
}

// keepMark stores a mark in the job's partition and returns its sequence; ok is false if persist gave the job up.
func (w *settler) keepMark(ctx context.Context, what string, j *job, mark queue.RetryMark) (seq uint64, ok bool) {
	ok = w.persist(ctx, what, j, func() (err error) {
		seq, err = j.part.markers.Retry(mark)
		return err
	})
	return seq, ok
}

// buryLetter stores a letter with its event, and has the job deleted. The ledger or a mark must already hold the
// letter's content.
func (w *settler) buryLetter(ctx context.Context, j *job, letter *deadletter.Letter) {
	if letter.Answer == nil && j.answeredAt != 0 { // the last answer came to an earlier call
		var ok bool
		if letter.Answer, ok = w.evidence.answer(ctx, w.evidence.of(j), j.answeredAt); !ok {
			return
		}
		j.answeredAt = 0
	}
	if w.persist(ctx, "dead letter", j, func() error { return w.env.letters.Bury(letter) }) {
		fault.Pass(fault.LetterKept)
		w.traceEnd(j, letter)
		w.finish(j, string(letter.Reason))
	}
}

// again stores the ledger's record and the retry mark, and then lets the job wait.
func (w *settler) again(ctx context.Context, j *job, c *ledger.Record, notBefore bucket.Micros) {
	c.NotBefore = notBefore
	if !w.keepRecord(ctx, j, c) {
		return
	}
	seq, ok := w.keepMark(ctx, "retry mark", j, queue.RetryMark{
		Seq: j.Seq, Calls: j.Calls, Attempts: j.attempts, NotBefore: notBefore, Reason: c.Detail, Pushback: c.Outcome == ledger.PushedBack,
		Billed: string(j.doubt.billed), Idempotency: j.doubt.identity, Unseen: j.Unseen, Crashes: j.crashes, Deaths: j.Deaths, Status: j.status,
		Answered: j.answeredAt, Accepted: j.accepted, KeySum: queue.KeySum(j.Queue.Key),
	})
	if !ok {
		return
	}
	fault.Pass(fault.RetryStored)
	w.traceRest(j, c)
	j.rested = w.now()
	w.update(func(s *schedule.Schedule) {
		j.dropIntentsLocked()
		if j.markSeq != 0 {
			j.part.bucket.Discard(j.markSeq)
		}
		j.markSeq = seq
		j.Failed, j.lost, j.flown = c.Detail, nil, nil
		w.restLocked(j, notBefore)
	})
}

// keepRecord stores a call's record in the ledger, and reports whether it succeeded.
func (w *settler) keepRecord(ctx context.Context, j *job, c *ledger.Record) bool {
	var seq uint64
	if !w.persist(ctx, "ledger record", j, func() (err error) {
		seq, err = w.env.record(j.part.mayCall, c)
		return err
	}) {
		return false
	}
	w.env.metrics.spend.add(c)
	w.traceCall(j, c)
	if c.Status != 0 {
		j.answeredAt = seq
	}
	fault.Pass(fault.RecordStored)
	w.unrecorded.accountedFor(j)
	return true
}

// persist retries a write until it succeeds, and reports whether it did. Meanwhile the job stays where it is and is not
// called again. While the right to the partition is in doubt, persist waits. If the right is lost, persist abandons the
// job and returns false: the job belongs to the next owner. It also returns false when ctx is done: the next start
// finds the job again.
func (w *settler) persist(ctx context.Context, what string, j *job, write func() error) bool {
	p := j.part
	for {
		err := stream.ErrNotNow
		if p.mayCall() {
			err = write()
		}
		switch {
		case err == nil:
			return true
		case p.lost.Load():
			w.abandon(j)
			return false
		case ctx.Err() != nil:
			w.logOf(j).Warn("stopped before it was stored; a restart will find the job again", "what", what, "err", err)
			return false
		case errors.Is(err, stream.ErrNotNow):
			stream.Sleep(ctx, leaseCheck)
		default:
			// Do not pay for more calls while their outcomes cannot be stored.
			w.update(func(s *schedule.Schedule) { s.Hold(nil, w.now().Add(2*persistRetry), "outcomes cannot be stored") })
			w.logOf(j).Error("could not be stored; trying again", "what", what, "err", err)
			stream.Sleep(ctx, persistRetry)
		}
	}
}

// finish ends a job whose end is durable: it has the message deleted, and drops the job's markers.
func (w *settler) finish(j *job, outcome string) {
	p := j.part
	if p.lost.Load() {
		w.abandon(j)
		return
	}
	w.metrics.finished.count(outcome)
	w.unrecorded.accountedFor(j)
	j.rememberEnd()
	p.bucket.Finish(j.Queue.Key, j.Seq)
	stalled := p.bucket.Unswept() > queue.MaxUnswept
	w.update(func(s *schedule.Schedule) {
		p.cache.dropKept(j.Seq)
		delete(p.removed, j.Seq)
		j.dropIntentsLocked()
		j.adopted.LetGo()
		if j.markSeq != 0 {
			p.bucket.Discard(j.markSeq)
		}
		for _, seq := range j.ends {
			p.bucket.Discard(seq)
		}
		s.Finished(j.Job)
		if j.ended != nil {
			j.outcome = outcome
			close(j.ended)
		}
		if stalled && p.Open {
			p.Open, p.Stalled = false, true
			time.AfterFunc(time.Second, func() { w.unstall(p) })
		}
	})
}

// unstall opens a stalled partition again once at most half of queue.MaxUnswept finished jobs are left to delete. Until
// then it looks again every second.
func (w *settler) unstall(p *partition) {
	if p.bucket.Unswept() > queue.MaxUnswept/2 {
		time.AfterFunc(time.Second, func() { w.unstall(p) })
		return
	}
	w.update(func(s *schedule.Schedule) {
		if p.Stalled = false; p.closing || p.lost.Load() {
			return
		}
		s.OpenPartition(&p.Partition)
	})
}

// abandon drops a job whose partition was lost. The new owner brings the job to its end.
func (w *settler) abandon(j *job) {
	w.unrecorded.accountedFor(j)
	j.entry.LetGo()
	j.adopted.LetGo()
	w.update(func(s *schedule.Schedule) { s.Finished(j.Job) })
}
