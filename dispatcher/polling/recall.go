package polling

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
)

// An operator may cancel a job whose operation goes on. weir tells the api, if the configuration says how, and then
// polls once more. If the operation is done by then, the job is done. Otherwise the job becomes a letter cancelled,
// which says whether the api was told. Its call stays billed.

// recall ends a cancelled job.
func (w *Poller) recall(ctx, hard context.Context, p *poll, terms *lane.Terms) {
	j := p.job
	told := "its operation goes on: no operation.cancel was configured when it began, or none is now"
	if o := terms.API.Operation; o != nil && o.Cancel != nil && j.Operation.Cancel != "" {
		r := terms.Polls.Ask(ctx, o.Cancel.Method, j.Operation.Cancel, httpcall.Hooks{MayWrite: j.Part.MayCall})
		switch {
		case ctx.Err() != nil:
			return // the next process finds the job uncancelled, and its operation unchanged
		case r.Status >= 200 && r.Status < 300:
			told = fmt.Sprintf("the api was told to cancel its operation, and answered %d", r.Status)
		case r.Status != 0:
			told = fmt.Sprintf("its operation may go on: the api was told to cancel it, and answered %d", r.Status)
		default:
			told = fmt.Sprintf("its operation may go on: the api could not be told to cancel it: %v", r.Err)
		}
		w.Env.Metrics.Polls.WithLabelValues(w.Name, "cancel").Inc()
	}
	a := answer{r: httpcall.Response{Started: time.Now(), Ended: time.Now()}, means: httpcall.StillUnknown}
	if terms.Polls != nil {
		a.r, a.means, a.detail = terms.Polls.Poll(ctx, j.Operation.Address, httpcall.Hooks{MayWrite: j.Part.MayCall})
		if ctx.Err() != nil {
			return
		}
		w.count(a)
	}
	if a.means == httpcall.OperationDone {
		w.done(hard, j, terms, a)
		return
	}
	w.Mu.Lock()
	why := j.Why
	w.Mu.Unlock()
	detail := "cancelled by an operator"
	if why != "" {
		detail += ": " + why
	}
	w.end(hard, j, a.r, deadletter.Cancelled, detail+"; "+told)
}

// endMissing ends a job whose message was deleted by hand.
func (w *Poller) endMissing(ctx context.Context, j *lane.Job) {
	if w.take(j) {
		w.settler.BuryMissing(ctx, j, queue.DeletedByOthers)
	}
}
