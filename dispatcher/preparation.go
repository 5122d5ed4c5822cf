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
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/settle"
)

// prepare makes a staged job ready: it loads and reads the message, acquires a connection and stores the intent. Only
// then does the schedule ask for a slot, so that only sending is left to do in the slot. prepare reports whether the
// job is ready. If not, the job rests or has ended.
func (w *caller) prepare(ctx context.Context, j *lane.Job) bool {
	j.Staged = w.Now()
	if !w.open(ctx, j) || j.Terms.API.Reuse != nil && w.compare(ctx, j) {
		return false
	}
	if (j.Terms.API.Pack != nil || len(j.Members()) > 0) && !w.assemble(ctx, j) {
		return false
	}
	if slot, err := w.pace.Recall(ctx, j.Queue); err != nil {
		w.unprepared(ctx, j, err)
		return false
	} else if slot > w.Now().Add(limits.LongWait) {
		w.Update(func(s *schedule.Schedule) {
			j.Orders = nil
			j.DisbandLocked()
			w.LeaveLocked(j)
			s.Postpone(j.Job, slot)
		})
		return false
	}
	if err := j.Terms.Call.Conns.Acquire(ctx); err != nil {
		w.unconnected(ctx, j, err)
		return false
	}
	// After a missed slot the job's intent is still stored.
	if j.Announced.Call == j.Calls+1 && j.Announced.By == j.Terms && j.Leads == nil || fault.Planted(fault.NoIntent) {
		w.Update(func(*schedule.Schedule) { w.MadeLocked(j) })
		return true
	}
	return j.Part.Intents.Intend(j)
}

// examine reads a job's message and decides whether the job may be called. If not, it returns the reason and detail for
// the job's letter. pack is the pack in which the job would be called, "" for none.
func (w *caller) examine(j *lane.Job, e queue.Entry, pack string) (reason deadletter.Reason, detail string) {
	refusal, err := w.read(j, e)
	switch {
	case !j.Doubt.Allows(j.Terms.API, pack, w.WallNow()):
		return deadletter.Unknown, j.InDoubt(j.Terms.API)
	case refusal != nil:
		return deadletter.Invalid, refusal.Description
	case err != nil:
		return deadletter.Invalid, err.Error()
	case j.Past(w.Now()):
		return deadletter.Expired, settle.LateDetail + w.Waited(j)
	}
	return "", ""
}

// unprepared lets a job that could not be made ready rest, or ends it if its message is gone.
func (w *caller) unprepared(ctx context.Context, j *lane.Job, err error) {
	w.disband(j)
	if errors.Is(err, settle.ErrNoRoom) {
		w.Update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.RestLocked(j, schedule.Never-1) })
		return
	}
	if w.settler.GivenUp(ctx, j, err) {
		return
	}
	if ctx.Err() == nil {
		w.LogOf(j).Error("a job could not be made ready; trying again", "err", err)
	}
	w.Update(func(s *schedule.Schedule) {
		s.Unstage(j.Job)
		w.RestLocked(j, w.Now().Add(lane.LoadRetry))
	})
}

// unconnected settles a call for which no connection could be opened, so that nothing was sent. The call took no slot.
// It counts as an attempt unless the breaker was open.
func (w *caller) unconnected(ctx context.Context, j *lane.Job, err error) {
	w.disband(j)
	if ctx.Err() != nil {
		w.Update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.RestLocked(j, schedule.Never-1) })
		return
	}
	now := time.Now()
	w.Mu.Lock()
	w.Sched.Unconnected(j.Job)
	j.Grant, j.At = bucket.Grant{}, bucket.MicrosOf(now)
	w.noteHoldupLocked(j)
	j.Calls++
	j.Unseen = false
	j.Bill.Paid, j.Bill.Usage = j.Bill.Reserved, nil // the job's record tells the price, and that nothing was billed
	w.Mu.Unlock()
	w.settler.Settle(ctx, j, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}

// noteHoldupLocked notes what delayed the call that begins now. The backoff of a retry is no delay.
func (w *caller) noteHoldupLocked(j *lane.Job) {
	if j.Holdup = w.Sched.At(w.Now()).HoldupOf(j.Job, j.Since()); j.Holdup.For == schedule.WaitRetry {
		j.Holdup = schedule.Holdup{}
	}
}
