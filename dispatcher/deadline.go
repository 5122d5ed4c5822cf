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
func (p *part) expectLocked(e queue.Entry) {
	if at := ingest.DeadlineOf(e.Header, e.Time); !at.IsZero() {
		p.Expect(e.Seq, bucket.MicrosOf(at))
	}
}

const lateDetail = "the deadline passed before its call"

// expire ends a job whose deadline has passed, which may be loaded already.
func (l *lane) expire(ctx context.Context, j *job) {
	if !l.reload(ctx, j) {
		return
	}
	if !j.doubt.allows(l.present()) {
		l.bury(ctx, j, deadletter.Unknown, doubtDetail, nil)
		return
	}
	l.bury(ctx, j, deadletter.Expired, lateDetail, nil)
}

// present is what the api is now.
func (l *lane) present() *httpcall.API {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms.api
}
