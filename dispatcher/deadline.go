package dispatcher

import (
	"context"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

// expectLocked notes the deadline of a job that was read, if it has one: it may pass while the job cannot be called, and so is
// not loaded.
func (p *partition) expectLocked(e queue.Entry) {
	if at := ingest.DeadlineOf(e.Header, e.Time); !at.IsZero() {
		p.Expect(e.Seq, bucket.MicrosOf(at))
	}
}

const lateDetail = "the deadline passed before its call"

// expire ends a job whose deadline has passed, which may be loaded already.
func (w *apiWorker) expire(ctx context.Context, j *job) {
	if !w.reload(ctx, j) {
		return
	}
	if !j.doubt.allows(w.present()) {
		w.bury(ctx, j, deadletter.Unknown, doubtDetail, nil)
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
