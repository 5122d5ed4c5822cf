package dispatcher

import (
	"context"
	"errors"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// A job is made ready shortly before its slot, so that nothing but sending is left to do in it.

// prepare makes a staged job ready: its message loaded and read, a connection there, its intent stored. Only then is a
// slot asked for, so that nothing but sending is left to do in it. It reports whether the job is ready; if not, the job rests or
// has ended.
func (w *apiWorker) prepare(ctx context.Context, j *job) bool {
	j.staged = w.now()
	w.mu.Lock()
	j.bind(w.terms)
	removed := j.part.isRemovedLocked(j.Seq)
	if removed {
		j.part.recallKeptLocked(j)
	}
	w.mu.Unlock()
	if removed {
		w.unstage(j)
		w.buryMissing(ctx, j, queue.DeletedByOthers)
		return false
	}
	entry, err := w.load(ctx, j)
	if err != nil {
		w.unprepared(ctx, j, err)
		return false
	}
	if reason, detail := w.examine(j, entry); reason != "" {
		w.unstage(j)
		w.bury(ctx, j, reason, detail, nil)
		return false
	}
	if slot, err := w.pace.recall(ctx, j.Queue); err != nil {
		w.unprepared(ctx, j, err)
		return false
	} else if slot > w.now().Add(schedule.LongWait) {
		w.update(func(s *schedule.Schedule) { j.orders = nil; s.Postpone(j.Job, slot) })
		return false
	}
	if err := j.terms.call.Conns.Acquire(ctx); err != nil {
		w.unconnected(ctx, j, err)
		return false
	}
	if j.intended == j.Calls+1 && j.intendedBy == j.terms || fault.Planted(fault.NoIntent) { // a slot was missed, its intent still stands
		w.update(func(*schedule.Schedule) { w.madeLocked(j) })
		return true
	}
	return j.part.intend(j)
}

// examine reads a job that is about to be made ready, and says why it is not to be called, if it is not.
func (w *apiWorker) examine(j *job, e queue.Entry) (reason deadletter.Reason, detail string) {
	refusal, err := w.read(j, e)
	switch {
	case !j.doubt.allows(j.terms.api):
		return deadletter.Unknown, j.inDoubt()
	case refusal != nil:
		return deadletter.Invalid, refusal.Description
	case err != nil:
		return deadletter.Invalid, err.Error()
	case j.Past(w.now()):
		return deadletter.Expired, lateDetail + w.waited(j)
	}
	return "", ""
}

// restLocked lets a job wait. It has no goroutine then.
func (w *apiWorker) restLocked(j *job, notBefore bucket.Micros) {
	j.orders = nil
	w.s.Rest(j.Job, notBefore)
}

// madeLocked marks a job as ready.
func (w *apiWorker) madeLocked(j *job) {
	w.s.LearnLead(j.staged.Until(w.now()))
	w.s.Loaded(j.Job)
}

// mostMissing is how often a message may be missing before it is taken for deleted: a replica may lag.
const mostMissing = 5

// loadTimeout bounds the loading of one message; loadRetry is when a failed one is tried again.
const (
	loadTimeout = 10 * time.Second
	loadRetry   = time.Second
)

func (w *apiWorker) unstage(j *job) { w.update(func(s *schedule.Schedule) { s.Unstage(j.Job) }) }

// unprepared puts a job back that could not be made ready.
func (w *apiWorker) unprepared(ctx context.Context, j *job, err error) {
	if errors.Is(err, errNoRoom) {
		w.update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.restLocked(j, schedule.Never-1) })
		return
	}
	if w.givenUp(ctx, j, err) {
		return
	}
	if ctx.Err() == nil {
		w.logOf(j).Error("a job could not be made ready; trying again", "err", err)
	}
	w.update(func(s *schedule.Schedule) {
		s.Unstage(j.Job)
		w.restLocked(j, w.now().Add(loadRetry))
	})
}

// givenUp ends a job whose message could not be loaded if that is because it is not there, and reports whether it did.
func (w *apiWorker) givenUp(ctx context.Context, j *job, err error) bool {
	if isNotFound(err) {
		j.missing++
	}
	if j.missing < mostMissing {
		return false
	}
	absence := w.absence(ctx, j)
	if absence == queue.Present {
		return false
	}
	w.update(func(s *schedule.Schedule) {
		if j.IsStaged() {
			s.Unstage(j.Job)
		}
	})
	w.buryMissing(ctx, j, absence)
	return true
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }

// absence asks the stream's leader whether a job's message is gone. Without its word the job is kept.
func (w *apiWorker) absence(ctx context.Context, j *job) queue.Absence {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	a, err := j.part.bucket.Absence(ctx, j.Seq)
	if err != nil {
		return queue.Present
	}
	return a
}

// unconnected is a call for which there was no connection: nothing was sent. It took no slot, but counts as an attempt,
// unless the breaker was open.
func (w *apiWorker) unconnected(ctx context.Context, j *job, err error) {
	if ctx.Err() != nil {
		w.update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.restLocked(j, schedule.Never-1) })
		return
	}
	now := time.Now()
	w.mu.Lock()
	w.s.Unconnected(j.Job)
	j.Grant, j.At = bucket.Grant{}, bucket.MicrosOf(now)
	w.noteHoldupLocked(j)
	j.Calls++
	j.Unseen = false
	w.mu.Unlock()
	w.settle(ctx, j, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}
