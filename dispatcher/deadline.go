package dispatcher

import (
	"context"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

const lateDetail = "the deadline passed before its call"

// expire ends a job whose deadline has passed, which may be loaded already.
func (w *apiWorker) expire(ctx context.Context, j *job) {
	if !w.reload(ctx, j) {
		return
	}
	if !j.doubt.allows(w.present()) {
		w.bury(ctx, j, deadletter.Unknown, w.inDoubt(j), nil)
		return
	}
	if j.part.isRestored(j.Seq) && (j.message.Deadline.IsZero() || time.Now().Before(j.message.Deadline)) { // the api takes keys by now, and did not when the job was read
		w.bury(ctx, j, deadletter.Unknown, w.inDoubt(j), nil)
		return
	}
	w.bury(ctx, j, deadletter.Expired, lateDetail, nil)
}

// present is what the api is now.
func (w *apiWorker) present() *httpcall.API {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.terms.api
}
