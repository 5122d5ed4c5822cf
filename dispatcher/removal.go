package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// Operators may delete messages from a partition's stream by hand, or the whole stream (queue.Removal). The owner
// reports this, and the partition stays in operation:
//
//   - A job whose message is gone is not called any more, even if its body is in memory: the operator deleted it so
//     that it is not called. It becomes a letter with everything known about it. If its call is under way, the outcome
//     is stored as usual.
//   - The owner's epoch is stored again if the right to the partition is valid. Until then the stream refuses every
//     intent, so that no new call starts.
//   - Intents of running calls whose jobs are still there are stored again, and so are holds. Retry marks are not: the
//     ledger has what they say of calls, and the count of attempts begins again after a restart.
//   - Everything stays in memory: what keys and limits have used, pauses, holds, ids of ended jobs. If the stream was
//     deleted and made again, it does not know the ids of jobs whose calls are under way, and the owner notes these ids
//     as ended.
//
// The owner cannot see the loss of a job that another replica's intake stored and that was not read yet. If this
// process dies between the removal and the letters, the jobs that only it knew are lost.

// removals handles messages that were deleted from a partition's stream by hand.
type removals struct {
	*partition
	settler   *settler
	notes     *holdNotes
	dropped   func(err error) // drops a partition that another owner has taken
	telling   sync.Mutex      // held while one removal is reported
	examining bool            // examineFence runs; the lane's lock guards it
}

// waitingJob is a job whose message is gone.
type waitingJob struct {
	key string
	seq uint64
}

// buriedAtOnce bounds how many letters of removed jobs are stored at a time.
const buriedAtOnce = 64

// removed handles a removal in the background. It does not block.
func (p *removals) removed(ctx context.Context, r queue.Removal) {
	p.w.mu.Lock()
	if p.partition.removed == nil {
		p.partition.removed = map[uint64]struct{}{}
	}
	for _, seq := range r.Seqs {
		p.partition.removed[seq] = struct{}{}
	}
	p.w.mu.Unlock()
	p.w.running.Go(func() {
		p.telling.Lock()
		defer p.telling.Unlock()
		if r.Epoch {
			p.renewEpoch(ctx)
		}
		waiting, flying := p.takenOut(&r)
		p.tellRemoved(&r, len(waiting)+len(r.Unread), flying)
		p.keepMarkersAgain(&r)
		p.buryUnread(ctx, &r)
		for some := range slices.Chunk(waiting, buriedAtOnce) {
			p.buryTakenOut(ctx, some)
		}
	})
}

// takenOut returns the removed jobs that must become letters, and how many removed jobs have a call under way. It
// forgets removed messages that are no jobs.
func (p *removals) takenOut(r *queue.Removal) (waiting []waitingJob, flying int) {
	w, known := p.w, map[uint64]struct{}{}
	w.eachLocked(w.s.Queues(), func(q *schedule.KeyQueue) {
		if q.Partition != &p.Partition || q.Empty() {
			return
		}
		for seq := range q.Seqs {
			if _, gone := slices.BinarySearch(r.Seqs, seq); !gone {
				continue
			}
			known[seq] = struct{}{}
			if t := q.Job(seq); t == nil || !t.UnderWay() {
				waiting = append(waiting, waitingJob{q.Key, seq})
				continue
			}
			flying++
			if j := jobLocked(q.Job(seq)); r.Remade {
				j.rememberEnd()
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seq := range r.Seqs {
		if _, job := known[seq]; !job {
			delete(p.partition.removed, seq)
		}
	}
	return waiting, flying
}

// tellRemoved reports a removal.
func (p *removals) tellRemoved(r *queue.Removal, letters, flying int) {
	var what []string
	if r.Remade {
		what = append(what, "the stream was deleted by hand, and is made again, empty")
	} else {
		what = append(what, fmt.Sprintf("%d messages were deleted by hand", len(r.Seqs)+len(r.Unread)))
	}
	if letters > 0 || flying > 0 {
		what = append(what, fmt.Sprintf("%d jobs that waited become letters (unknown), the calls of %d go on", letters, flying))
	}
	if markers := len(r.Seqs) - letters + len(r.Unread) - flying; markers > 0 {
		what = append(what, fmt.Sprintf("%d were marks of calls and holds", markers))
	}
	if r.Epoch {
		what = append(what, "the owner's epoch was among it and is stored again")
	}
	p.tellChange(strings.Join(what, "; "))
}

// renewEpoch stores this owner's epoch again, while the right to the partition is certain. It blocks until the epoch is
// stored, the stream holds another owner's epoch, or the worker stops.
func (p *removals) renewEpoch(ctx context.Context) {
	for ctx.Err() == nil && !p.lost.Load() {
		if !p.mayCall() {
			if !stream.Sleep(ctx, leaseCheck) {
				return
			}
			continue
		}
		asking, cancel := context.WithTimeout(ctx, loadTimeout)
		fence, err := p.markers.Fence(asking)
		if err == nil && fence == queue.FenceGone && p.mayCall() {
			err = p.markers.Renew(asking, p.w.env.instance)
		}
		cancel()
		switch {
		case err == nil && fence == queue.FenceOther:
			p.fenced()
			return
		case err == nil:
			return
		}
		select {
		case <-p.w.stopping:
			return
		default:
		}
		if !errors.Is(err, queue.ErrFenced) {
			p.w.log.Error("could not store the owner's epoch again; no call of the partition starts until it is stored", "stream", p.bucket.Name(), "err", err)
		}
		if !stream.Sleep(ctx, loadRetry) {
			return
		}
	}
}

// fenced drops a partition that another owner has taken.
func (p *removals) fenced() {
	p.w.mu.Lock()
	p.Open = false
	p.w.mu.Unlock()
	p.dropped(errors.New("another owner has taken the partition"))
}

// examineFence finds out in the background why the stream has refused an intent. It does not block.
func (p *removals) examineFence() {
	p.w.mu.Lock()
	examined := p.examining
	p.examining = true
	p.w.mu.Unlock()
	if examined {
		return
	}
	p.bucket.LookForRemovals() // the jobs may be gone, too
	p.w.running.Go(func() {
		p.renewEpoch(context.Background()) // the worker's stop ends it
		p.w.mu.Lock()
		p.examining = false
		p.w.mu.Unlock()
	})
}

// buryUnread stores letters of jobs that were removed before they were read.
func (p *removals) buryUnread(ctx context.Context, r *queue.Removal) {
	for _, seq := range slices.Sorted(maps.Keys(r.Unread)) {
		l := letterOfRemoved(p.partition, r.Unread[seq], seq)
		if p.persistOf(ctx, func() error { return p.w.env.letters.Bury(l) }) != nil {
			return
		}
		p.w.metrics.finished.count(Deleted)
	}
}

// letterOfRemoved builds the letter of a removed job of which only key and sequence are known.
func letterOfRemoved(p *partition, key string, seq uint64) *deadletter.Letter {
	return &deadletter.Letter{
		API: p.w.name, Key: key, Reason: deadletter.Unknown, BodyLeftOut: true, At: time.Now(), Billed: deadletter.NotBilled,
		Detail: deletedDetail(p.bucket.Name(), seq), Origin: ledger.OriginOf(p.bucket.Name(), seq, 0),
	}
}

// buryTakenOut makes letters of some removed jobs, and blocks until they are stored.
func (p *removals) buryTakenOut(ctx context.Context, some []waitingJob) {
	w := p.w
	var storing sync.WaitGroup
	var ends []*job
	w.update(func(s *schedule.Schedule) {
		for _, of := range some {
			q := s.Find(of.key)
			if q == nil || q.Partition != &p.Partition {
				continue
			}
			if q.Waits(of.seq) {
				t := s.Extract(q, of.seq)
				t.Settle()
				j := jobLocked(t)
				j.bind(w.terms)
				p.recallKeptLocked(j)
				storing.Go(func() { p.settler.buryMissing(ctx, j, queue.DeletedByOthers) })
				continue
			}
			if t, _ := s.Cancel(of.key, of.seq); t != nil {
				j := jobLocked(t)
				if j.ended == nil {
					j.ended = make(chan struct{})
				}
				ends = append(ends, j)
			}
		}
	})
	storing.Wait()
	for _, j := range ends {
		select {
		case <-j.ended:
		case <-w.stopped: // its slot never comes
			// At a hard stop nothing is stored.
			_ = p.persistOf(ctx, func() error { return p.w.env.letters.Bury(letterOfRemoved(p.partition, j.Queue.Key, j.Seq)) })
		case <-ctx.Done():
			return
		}
	}
}

// keepMarkersAgain stores again the markers that were removed and are still needed: holds, and intents of jobs that are
// still there.
func (p *removals) keepMarkersAgain(r *queue.Removal) {
	gone := func(seq uint64) bool { _, in := slices.BinarySearch(r.Seqs, seq); return in }
	w := p.w
	var intents []queue.Intent
	var jobs []*job
	w.eachLocked(w.s.Queues(), func(q *schedule.KeyQueue) {
		if q.Partition != &p.Partition {
			return
		}
		for _, t := range q.Jobs {
			j, begun := t.Of.(*job)
			if begun && j.intendedBy != nil && !gone(j.Seq) && slices.ContainsFunc(j.intents, func(m *intentMark) bool { return gone(m.seq) }) {
				intents, jobs = append(intents, j.intent(j.intended)), append(jobs, j)
			}
		}
	})
	w.mu.Lock()
	holds := map[string]holdMark{}
	for key, m := range p.notes.marks {
		if m.part == p.partition && m.seq != 0 && gone(m.seq) {
			holds[key] = m
		}
	}
	w.mu.Unlock()
	failed := func(err error) {
		if err != nil {
			w.log.Error("could not store a removed mark again: a restart would not know it", "stream", p.bucket.Name(), "err", err)
		}
	}
	for key, m := range holds {
		p.markers.Hold(key, m.until, "held before its mark was deleted by hand", func(seq uint64, err error) {
			w.mu.Lock()
			if err == nil && p.notes.marks[key] == m {
				p.notes.marks[key] = holdMark{p.partition, seq, m.until}
			}
			w.mu.Unlock()
			failed(err)
		})
	}
	if len(intents) == 0 {
		return
	}
	p.markers.Intend(intents, func(seq uint64, err error) {
		failed(err)
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		mark := &intentMark{seq: seq, users: len(jobs)}
		for _, j := range jobs {
			if len(j.intents) > 0 {
				j.intents = append(j.intents, mark)
			} else if mark.users--; mark.users == 0 { // all have ended meanwhile
				p.bucket.Discard(seq)
			}
		}
	})
}
