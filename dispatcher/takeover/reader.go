package takeover

import (
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest"
)

// reader queues the jobs of a partition as its stream returns them. During a takeover it resumes those with a history.
// Its methods belong to the goroutine that reads the stream.
type reader struct {
	*lane.Owned
	settler *settle.Settler
	notes   *settle.HoldNotes
	pace    *Pace
	stock   *stocktaking
	replay  *replay // nil once everything that was in the stream at the takeover has been read
}

// add queues or resumes a job that the reader has read.
func (p *reader) add(ctx context.Context, e queue.Entry) {
	if p.addOne(ctx, e) {
		p.resumeKeys()
	}
}

func (p *reader) addOne(ctx context.Context, e queue.Entry) (resume bool) {
	p.W.Mu.Lock()
	defer p.W.Mu.Unlock()
	switch {
	case p.replay == nil:
		if p.meetDuplicateLocked(ctx, e) {
			return false
		}
		p.pushLocked(e)
		p.W.WakeUp()
	case !p.Closing: // if it is closing, the next owner reads the job
		p.stock.former.met(e.Seq)
		q := p.pushLocked(e)
		return p.takeFoundLocked(ctx, q, e)
	}
	return false
}

// pushLocked queues a job that was read, and keeps its message if the job may be called soon.
func (p *reader) pushLocked(e queue.Entry) *schedule.KeyQueue {
	p.expectLocked(e)
	notBefore, own := bucket.Micros(0), p.W.Sched.Queues.Own
	if at := ingest.NotBeforeOf(e.Header, e.Time); !at.IsZero() {
		notBefore = own(bucket.MicrosOf(at))
	}
	if notBefore <= p.W.Now().Add(keepAhead) {
		p.Cache.KeepLocked(e)
	}
	return p.W.Sched.PushEarly(e.Key, e.Seq, &p.Partition, ingest.PriorityOf(e.Header), own(bucket.MicrosOf(e.Time)), notBefore)
}

// keepAhead is how far in the future a job's due time may be if the job's message is to be kept in memory. The memory
// is meant for jobs that may be called soon.
const keepAhead = time.Minute

// expectLocked notes the deadline of a job that was read. The deadline may pass while the job cannot be called and so
// is not loaded. For a restored job that must not be called again, expectLocked notes a deadline in the past. So even
// during a hold such jobs become letters, a few at a time.
func (p *reader) expectLocked(e queue.Entry) {
	if api := p.W.Terms.API; (api.Idempotency == nil || api.Pack != nil) && p.MayBeCalled(e.Seq, ingest.NotBeforeOf(e.Header, e.Time)) {
		p.Expect(e.Seq, 1)
	} else if at := ingest.DeadlineOf(e.Header, e.Time); !at.IsZero() {
		p.Expect(e.Seq, p.W.Sched.Queues.Own(bucket.MicrosOf(at)))
	}
}

// begun says, for each sequence whose job has markers and was not read yet, whether the job has an intent. It may be
// called only during the replay.
func (p *reader) begun() map[uint64]bool {
	begun := map[uint64]bool{}
	for seq, f := range p.replay.found {
		begun[seq] = len(f.intents) > 0
	}
	return begun
}

// keepUnread keeps the markers of jobs that were not read, until the caller calls discard. They say whether a call of a
// lost job may have begun. It may be called only at the end of the replay.
func (p *reader) keepUnread() (discard func()) {
	unread := p.replay.found
	p.replay.found = nil
	return func() {
		p.W.Mu.Lock()
		defer p.W.Mu.Unlock()
		if p.Closing || p.Lost.Load() {
			return // the next owner reads them again
		}
		for _, f := range unread {
			p.discardLocked(f)
		}
	}
}
