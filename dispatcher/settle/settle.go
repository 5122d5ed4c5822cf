package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
)

// persistRetry is how long persist waits after a failed write. A write may be repeated, because its message id makes
// the stream store it only once.
const persistRetry = time.Second

// Settler brings jobs to their ends: it stores outcomes, results, records, marks and letters. Then it has the job
// deleted, or lets the job wait.
type Settler struct {
	*lane.Lane
	Memory     *Memory
	Spans      Spans
	notes      *HoldNotes
	Evidence   evidence
	Unrecorded unrecordedCalls
	onCallEnd  func(answered bool) // called under the lock when a call has ended
	Operations *Operations
	// HoldAccount holds the other apis of the account; nil: there is none.
	HoldAccount func(schedule.HoldChange)
}

// New returns a settler of a lane's jobs. It calls onCallEnd under the lock when a call has ended.
func New(l *lane.Lane, notes *HoldNotes, onCallEnd func(answered bool)) *Settler {
	w := &Settler{
		Lane: l, Memory: &Memory{l}, Spans: Spans{l.Env}, notes: notes,
		Evidence: evidenceOf(l.Env, l.Name, l.Log), onCallEnd: onCallEnd,
	}
	w.Operations = &Operations{Settler: w}
	return w
}

// Settle brings a called job to exactly one of these: done, buried, or waiting for its next call. It stores what is
// known of the call before it deletes the job or lets it wait.
func (w *Settler) Settle(ctx context.Context, j *lane.Job, r httpcall.Response) {
	w.Conclude(ctx, j, r, j.Judge(r))
}

// SettlePack settles each job of a called pack by the job's part of the answer. For what the call means for later
// calls, the pack's call counts once.
func (w *Settler) SettlePack(ctx context.Context, j *lane.Job, r httpcall.Response) {
	p, whole := j.Leads, j.Judge(r)
	f := w.heed(j, r, whole)
	w.Metrics.Calls.Count(whole.Name())
	w.Update(func(*schedule.Schedule) {
		j.Leads = nil
		for _, m := range p.Jobs {
			m.TieLocked(m.In)
		}
		if whole.Verdict == httpcall.Again && whole.Billed != deadletter.NotBilled {
			p.EvenLocked()
		}
	})
	other := f
	other.First, other.News, other.Denied, other.Hold = false, nil, false, schedule.HoldChange{}
	for i, m := range p.Jobs {
		if m != j {
			w.Running.Go(func() { w.conclude(ctx, m, p.Parts[i].Response, p.Parts[i].Outcome, other) })
		}
	}
	i := slices.Index(p.Jobs, j)
	w.conclude(ctx, j, p.Parts[i].Response, p.Parts[i].Outcome, f)
}

// Conclude settles a called job by an outcome that is already judged.
func (w *Settler) Conclude(ctx context.Context, j *lane.Job, r httpcall.Response, out httpcall.Outcome) {
	if j.In.Follows() { // an ended process called its pack, whose call counts with the pack's first job
		w.conclude(ctx, j, r, out, schedule.Feedback{NotBefore: w.Now().Add(max(out.After, out.Hold.Wait))})
		return
	}
	if j.In != nil {
		w.Metrics.Calls.Count(out.Name())
	}
	w.conclude(ctx, j, r, out, w.heed(j, r, out))
}

// heed tells the schedule how a call has ended, and returns what this means for later calls.
func (w *Settler) heed(j *lane.Job, r httpcall.Response, out httpcall.Outcome) schedule.Feedback {
	e := schedule.CallEnd{
		Again: out.Verdict == httpcall.Again, PushedBack: out.Verdict == httpcall.Pushback, Denied: out.Verdict == httpcall.Denied, Fault: out.Fault,
		Sent: r.Sent, After: out.After, Hold: out.Hold, Detail: out.Detail, Mend: out.Mend, Now: w.Now(), Jitter: rand.Float64(),
	}
	e.Started = e.Now.Add(-max(0, time.Since(r.Started)))
	w.Mu.Lock()
	defer w.Mu.Unlock()
	f := w.Sched.OnCallEnd(j.Job, e)
	w.LeaveIdleLocked(j.Queue) // the answer may hold the key
	w.onCallEnd(r.Status != 0)
	w.notes.dropDenialsLocked()
	return f
}

// conclude settles a called job. f is what the end of its call means for later calls.
func (w *Settler) conclude(ctx context.Context, j *lane.Job, r httpcall.Response, out httpcall.Outcome, f schedule.Feedback) {
	api := j.Terms.API
	w.Mu.Lock()
	if out.Counts() && !f.Free {
		j.Attempts++
	}
	j.Doubt.Add(out.Billed, j.CalledUnder(r.Started))
	j.Deaths, j.Status, j.LastCall = 0, cmp.Or(r.Status, j.Status), cmp.Or(j.LastCallOf(r), j.LastCall)
	j.BindLocked(j.In)
	exhausted := out.Verdict == httpcall.Again && j.Attempts >= api.Retry.Attempts
	w.Mu.Unlock()
	if exhausted {
		out.Verdict, out.Reason = httpcall.Dead, deadletter.Exhausted
		out.Detail = fmt.Sprintf("gave up after %d attempts, the last: %s", j.Attempts, out.Detail)
	}
	if j.In == nil {
		w.Metrics.Calls.Count(out.Name())
	}
	if f.First {
		w.LogOf(j).Warn("a call failed", "attempt", j.Attempts, "reason", out.Detail)
	}
	w.notes.AnnounceHolds(f.News)
	if f.Account.Until != 0 && w.HoldAccount != nil {
		w.HoldAccount(f.Account)
	}
	w.notes.keepHold(j.Part, f.Hold)
	if f.Denied {
		w.notes.keepDenial(f.News[0].Until, f.News[0].Why)
	}
	if w.Log.Enabled(ctx, slog.LevelDebug) {
		w.LogOf(j).Debug("call ended", "attempt", j.Attempts, "status", r.Status, "outcome", out.Name(), "reason", out.Detail)
	}

	switch out.Verdict {
	case httpcall.Delivered:
		w.keepResult(ctx, j, r, func(out httpcall.Outcome) *ledger.Record { return Record(j, r, out) }, out)
	case httpcall.Submitted:
		w.Operations.submit(ctx, j, r, out)
	case httpcall.Dead:
		c := Record(j, r, out)
		j.Operation, c.Operation = out.Operation, out.Operation
		w.Bury(ctx, j, out.Reason, out.Detail, c)
	case httpcall.Again:
		wait := schedule.Backoff(api.Retry.Min, api.Retry.Max, max(j.Attempts, 1), rand.Float64())
		w.Again(ctx, j, Record(j, r, out), max(w.Now().Add(wait), f.NotBefore))
	case httpcall.Pushback, httpcall.Denied:
		w.Again(ctx, j, Record(j, r, out), f.NotBefore)
	default:
		panic(fmt.Sprintf("settle: unknown verdict %d", out.Verdict)) // httpcall.Judge has a bug
	}
}

// keepResult stores the result, sends it to the producer's reply subject, stores the ledger's record, and has the job
// deleted. Each step starts only when the one before it is durable. So the record proves that the result is stored and
// the reply was sent. If a crash comes before the record, recovery finds the result and writes the record
// (dispatcher/takeover/loneresult.go). record builds the record of an outcome.
func (w *Settler) keepResult(ctx context.Context, j *lane.Job, r httpcall.Response, record func(httpcall.Outcome) *ledger.Record, out httpcall.Outcome) {
	if fault.Planted(fault.DeleteFirst) {
		j.Part.Bucket.Finish(j.Queue.Key, j.Seq)
		<-time.After(100 * time.Millisecond)
	}
	fault.Pass(fault.CallAnswered)
	msg := resultOf(j, r)
	request, reusable := w.RequestOf(j, &r)
	if reusable {
		msg.Header[ledger.HeaderRequest] = []string{request.String()}
	}
	stored, ok := w.storeResult(ctx, j, msg)
	if !ok {
		return
	}
	if stored.Duplicate {
		switch open, ok := (resultBar{w, j, resultMsgID(j)}).isOpen(ctx, stored.Seq); {
		case !ok:
			return
		case !open:
			out := barred(r.Status)
			w.Bury(ctx, j, out.Reason, out.Detail, record(out))
			return
		}
	}
	fault.Pass(fault.ResultStored)
	if reusable && msg.Header[ledger.HeaderBody] == nil {
		w.Update(func(*schedule.Schedule) { w.LearnLocked(request, stored.Seq, w.Now()) })
	}
	if j.Message.ReplyTo != "" {
		w.Env.Reply(j.Message.ReplyTo, msg)
	}
	c := record(out)
	c.Result = stored.Seq
	if w.KeepRecord(ctx, j, c) {
		w.Spans.End(j, nil)
		w.Finish(j, ledger.Done)
	}
}

// storeResult stores a result and returns the stream's answer. It blocks until the result is stored; ok is false if
// persist gave the job up. If the result is too large for its stream, storeResult stores only part of it: the call is
// paid for, and this job must not block all other jobs.
func (w *Settler) storeResult(ctx context.Context, j *lane.Job, msg *nats.Msg) (stored stream.Answer, ok bool) {
	ok = w.persist(ctx, "result", j, func() error {
		for {
			stored = w.Env.Results.WriteWhile(j.Part.MayCall, msg)
			err := stored.Err
			size := msg.Size()
			if !errors.Is(err, stream.ErrTooLarge) || !ledger.Lessen(msg) {
				return err
			}
			w.LogOf(j).Warn("a result is larger than its stream takes; less of it is kept", "bytes", size, "err", err)
		}
	})
	return stored, ok
}

// Bury stores the ledger's record c, then the letter with its event, and then has the job deleted. If there was no
// call, c is nil, and Bury stores the mark of the job's end instead of a record. The record or the mark comes first,
// because the letter can be written again from it and the job: after a crash between the two it is known whether the
// call was made.
//
// If the ledger already has a record of the call, Bury stores the mark as well. That record may be an earlier owner's
// that came late, and may say that another call follows.
func (w *Settler) Bury(ctx context.Context, j *lane.Job, reason deadletter.Reason, detail string, c *ledger.Record) {
	status, detail := j.Status, ledger.Clip(detail, ledger.MaxDetail)
	var answer *deadletter.Answer
	if c != nil {
		status, answer = c.Status, c.Answer
	}
	letter := Letter(j, reason, detail, status, j.Doubt.Charged())
	letter.Answer = answer
	w.Spans.Of(j)
	w.LogOf(j).Info("job buried", "reason", letter.Reason, "detail", letter.Detail, "billed", letter.Billed)
	var stored stream.Answer
	if c != nil {
		var ok bool
		if stored, ok = w.storeRecord(ctx, j, c); !ok {
			return
		}
	}
	if (c == nil || stored.Duplicate) && !w.keepEnd(ctx, j, letter) {
		return
	}
	w.BuryLetter(ctx, j, letter)
}

// keepEnd stores the mark that a job ends as a letter, and reports whether the mark is stored. Without the mark, a
// crash before the job's deletion could undo the decision: its reason may not apply any more, and the ledger may have
// no record of it.
func (w *Settler) keepEnd(ctx context.Context, j *lane.Job, letter *deadletter.Letter) bool {
	mark := queue.RetryMark{
		Seq: j.Seq, Calls: j.Calls, Attempts: j.Attempts, Billed: string(j.Doubt.Billed), Ends: string(letter.Reason), Reason: letter.Detail,
		Idempotency: j.Doubt.Identity, Status: j.Status, Answered: j.AnsweredAt, Accepted: j.Accepted, KeySum: queue.KeySum(j.Queue.Key),
		Operation: j.Operation,
	}
	seq, ok := w.keepMark(ctx, "end", j, mark)
	if ok {
		w.Mu.Lock()
		j.Marks.Ends = append(j.Marks.Ends, seq)
		w.Mu.Unlock()
	}
	return ok
}

// keepMark stores a mark in the job's partition and returns its sequence; ok is false if persist gave the job up.
func (w *Settler) keepMark(ctx context.Context, what string, j *lane.Job, mark queue.RetryMark) (seq uint64, ok bool) {
	ok = w.persist(ctx, what, j, func() (err error) {
		seq, err = j.Part.Markers.Retry(mark)
		return err
	})
	return seq, ok
}

// BuryLetter stores a letter with its event, and has the job deleted. The ledger or a mark must already hold what the
// letter says.
func (w *Settler) BuryLetter(ctx context.Context, j *lane.Job, letter *deadletter.Letter) {
	if letter.Answer == nil && j.AnsweredAt != 0 { // an earlier call got the last answer
		var ok bool
		if letter.Answer, ok = w.Evidence.answer(ctx, w.Evidence.Of(j), j.AnsweredAt); !ok {
			return
		}
		j.AnsweredAt = 0
	}
	if w.persist(ctx, "dead letter", j, func() error { return w.Env.Letters.Bury(letter) }) {
		fault.Pass(fault.LetterKept)
		w.Spans.End(j, letter)
		w.Finish(j, string(letter.Reason))
	}
}

// Again stores the ledger's record and the retry mark, and then lets the job wait until notBefore, by the lane's clock.
func (w *Settler) Again(ctx context.Context, j *lane.Job, c *ledger.Record, notBefore bucket.Micros) {
	c.NotBefore = w.WallTime(notBefore)
	if w.KeepRecord(ctx, j, c) {
		j.Rested = w.Now()
		w.Rest(ctx, j, c, notBefore)
	}
}

// Rest stores the retry mark of a job, and then lets the job wait until notBefore. c is the record of the job's last
// call. Rest deletes that call's intent and the former mark.
func (w *Settler) Rest(ctx context.Context, j *lane.Job, c *ledger.Record, notBefore bucket.Micros) {
	seq, ok := w.keepMark(ctx, "retry mark", j, queue.RetryMark{
		Seq: j.Seq, Calls: j.Calls, Attempts: j.Attempts, NotBefore: w.WallTime(notBefore), Reason: c.Detail, Pushback: c.Outcome == ledger.PushedBack,
		Billed: string(j.Doubt.Billed), Idempotency: j.Doubt.Identity, Unseen: j.Unseen, Crashes: j.Crashes, Deaths: j.Deaths, Status: j.Status,
		Answered: j.AnsweredAt, Pack: j.Bound(), Accepted: j.Accepted, KeySum: queue.KeySum(j.Queue.Key),
	})
	if !ok {
		return
	}
	fault.Pass(fault.RetryStored)
	w.Spans.rest(j, c)
	w.Update(func(s *schedule.Schedule) {
		j.DropIntentsLocked()
		j.Marks.Replace(j.Part, seq)
		if c.Outcome == ledger.PushedBack {
			j.Marks.Held = notBefore
		}
		j.Failed, j.Lost, j.Flown = c.Detail, nil, nil
		w.RestLocked(j, notBefore)
	})
}

// KeepRecord stores a call's record in the ledger, and reports whether it is stored.
func (w *Settler) KeepRecord(ctx context.Context, j *lane.Job, c *ledger.Record) bool {
	_, ok := w.storeRecord(ctx, j, c)
	return ok
}

// storeRecord stores a call's record in the ledger and returns the stream's answer; ok is false if persist gave the job
// up.
func (w *Settler) storeRecord(ctx context.Context, j *lane.Job, c *ledger.Record) (stored stream.Answer, ok bool) {
	if !w.persist(ctx, "ledger record", j, func() error {
		stored = w.Env.Record(j.Part.MayCall, c)
		return stored.Err
	}) {
		return stored, false
	}
	w.Env.Metrics.Spend.Add(c)
	for name, n := range c.Usage {
		w.Env.Metrics.Usage.WithLabelValues(c.API, name).Add(float64(n))
	}
	if !c.Polled {
		w.Spans.call(j, c)
	}
	if c.Status != 0 {
		j.AnsweredAt = stored.Seq
	}
	fault.Pass(fault.RecordStored)
	w.Unrecorded.AccountedFor(j)
	return stored, true
}

// persist retries a write until it succeeds, and reports whether it did. Meanwhile the job is not called again. While
// the right to the partition is in doubt, persist waits. If the right is lost, persist abandons the job and returns
// false: the job belongs to the next owner. It also returns false when ctx is done: the next start finds the job again.
func (w *Settler) persist(ctx context.Context, what string, j *lane.Job, write func() error) bool {
	p := j.Part
	for {
		err := stream.ErrNotNow
		if p.MayCall() {
			err = write()
		}
		switch {
		case err == nil:
			return true
		case p.Lost.Load():
			w.abandon(j)
			return false
		case ctx.Err() != nil:
			w.LogOf(j).Warn("stopped before it was stored; a restart will find the job again", "what", what, "err", err)
			return false
		case errors.Is(err, stream.ErrNotNow):
			stream.Sleep(ctx, lane.LeaseCheck)
		default:
			// No more calls are paid for while their outcomes cannot be stored.
			w.Update(func(s *schedule.Schedule) {
				s.Holds.Hold(nil, w.Now().Add(2*persistRetry), "outcomes cannot be stored")
			})
			w.LogOf(j).Error("could not be stored; trying again", "what", what, "err", err)
			stream.Sleep(ctx, persistRetry)
		}
	}
}

// Finish ends a job whose end is durable: it has the job's message deleted, and drops the job's markers.
func (w *Settler) Finish(j *lane.Job, outcome string) {
	p := j.Part
	w.keepHoldOf(j)
	if p.Lost.Load() {
		w.abandon(j)
		return
	}
	w.Metrics.Finished.Count(outcome)
	w.Unrecorded.AccountedFor(j)
	j.RememberEnd()
	p.Bucket.Finish(j.Queue.Key, j.Seq)
	stalled := p.Bucket.Unswept() > queue.MaxUnswept
	w.Update(func(s *schedule.Schedule) {
		p.Cache.DropKept(j.Seq)
		delete(p.Removed, j.Seq)
		j.DropIntentsLocked()
		j.Adopted.LetGo()
		j.Marks.Drop(p)
		w.LeaveLocked(j)
		s.Finished(j.Job)
		if j.Ended != nil {
			j.Outcome = outcome
			close(j.Ended)
		}
		if stalled && p.Open {
			p.Open, p.Stalled = false, true
			time.AfterFunc(time.Second, func() { w.unstall(p) })
		}
	})
	w.Operations.letSlotGo(j)
}

// keepHoldOf stores a mark of the hold that the retry mark of an ending job records, because the retry mark is deleted.
func (w *Settler) keepHoldOf(j *lane.Job) {
	w.Mu.Lock()
	hold := schedule.HoldChange{Queue: j.Queue, Until: j.Marks.Held, Why: j.Failed}
	if w.Terms.API.Retry.HoldAPI {
		hold.Queue = nil
	}
	w.Mu.Unlock()
	if hold.Until != 0 {
		w.notes.storeHold(j.Part, hold)
	}
}

// unstall opens a stalled partition again when at most half of queue.MaxUnswept finished jobs are left to delete. Until
// then it checks again every second.
func (w *Settler) unstall(p *lane.Owned) {
	if p.Bucket.Unswept() > queue.MaxUnswept/2 {
		time.AfterFunc(time.Second, func() { w.unstall(p) })
		return
	}
	w.Update(func(s *schedule.Schedule) {
		if p.Stalled = false; p.Closing || p.Lost.Load() {
			return
		}
		s.Queues.OpenPartition(&p.Partition)
	})
}

// abandon drops a job whose partition was lost. The new owner brings the job to its end.
func (w *Settler) abandon(j *lane.Job) {
	w.Unrecorded.AccountedFor(j)
	j.Entry.LetGo()
	j.Adopted.LetGo()
	w.Update(func(s *schedule.Schedule) {
		w.LeaveLocked(j)
		s.Finished(j.Job)
	})
}
