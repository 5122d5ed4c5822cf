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
)

// prepare makes a staged job ready: it loads and reads the message, acquires a connection and stores the intent. The
// schedule asks for a slot only then, so that only sending is left to do in the slot. prepare reports whether the job
// is ready. If not, the job rests or has ended.
func (w *caller) prepare(ctx context.Context, j *job) bool {
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
		w.settler.buryMissing(ctx, j, queue.DeletedByOthers)
		return false
	}
	entry, err := w.memory.load(ctx, j)
	if err != nil {
		w.unprepared(ctx, j, err)
		return false
	}
	if reason, detail := w.examine(j, entry); reason != "" {
		w.unstage(j)
		w.settler.bury(ctx, j, reason, detail, nil)
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
	// After a missed slot the job's intent is still stored.
	if j.intended == j.Calls+1 && j.intendedBy == j.terms || fault.Planted(fault.NoIntent) {
		w.update(func(*schedule.Schedule) { w.madeLocked(j) })
		return true
	}
	return j.part.intents.intend(j)
}

// examine reads a job's message and decides whether the job may be called. If not, it returns the reason and detail for
// its letter.
func (w *caller) examine(j *job, e queue.Entry) (reason deadletter.Reason, detail string) {
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

// unprepared lets a job that could not be made ready rest, or ends it if its message is gone.
func (w *caller) unprepared(ctx context.Context, j *job, err error) {
	if errors.Is(err, errNoRoom) {
		w.update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.restLocked(j, schedule.Never-1) })
		return
	}
	if w.settler.givenUp(ctx, j, err) {
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

// unconnected settles a call for which no connection could be opened, so that nothing was sent. The call took no slot.
// It counts as an attempt unless the breaker was open.
func (w *caller) unconnected(ctx context.Context, j *job, err error) {
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
	w.settler.settle(ctx, j, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}

// noteHoldupLocked notes what delayed the call that begins now. The backoff of a retry is no delay.
func (w *caller) noteHoldupLocked(j *job) {
	if j.holdup = w.s.At(w.now()).HoldupOf(j.Job, j.since()); j.holdup.For == schedule.WaitRetry {
		j.holdup = schedule.Holdup{}
	}
}
