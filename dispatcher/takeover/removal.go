package takeover

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
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
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
//     ledger has what they say of calls, and the count of attempts begins again after a restart. Marks of operations
//     are stored again, because the ledger's records of their calls may be older than what a restart reads.
//   - Everything stays in memory: what keys and limits have used, pauses, holds, ids of ended jobs. If the stream was
//     deleted and made again, it does not know the ids of jobs whose calls are under way, and the owner notes these ids
//     as ended.
//
// The owner cannot see the loss of a job that another replica's intake stored and that it had not read yet. If this
// process dies after the removal and before the letters are stored, the jobs that only it knew are lost.

// removals handles messages that were deleted from a partition's stream by hand.
type removals struct {
	*lane.Owned
	settler   *settle.Settler
	notes     *settle.HoldNotes
	dropped   func(err error) // drops the partition if another owner has taken it
	telling   sync.Mutex      // held while one removal is reported
	underWay  sync.WaitGroup  // removals that are not reported yet
	examining bool            // examineFence runs; the lane's lock guards it
}

// waitingJob names a job that is not being called and whose message is gone.
type waitingJob struct {
	key string
	seq uint64
}

// buriedAtOnce bounds how many letters of removed jobs are stored at the same time.
const buriedAtOnce = 64

// removed handles a removal in a goroutine of its own. It does not block.
func (p *removals) removed(ctx context.Context, r queue.Removal) {
	p.W.Mu.Lock()
	if p.Removed == nil {
		p.Removed = map[uint64]struct{}{}
	}
	for _, seq := range r.Seqs {
		p.Removed[seq] = struct{}{}
	}
	p.W.Mu.Unlock()
	p.underWay.Add(1)
	p.W.Running.Go(func() {
		defer p.underWay.Done()
		p.telling.Lock()
		defer p.telling.Unlock()
		if r.Epoch {
			p.renewEpoch(ctx)
		}
		waiting, flying := p.takenOut(&r)
		p.tellRemoved(&r, len(waiting)+len(r.Unread), flying)
		p.keepIntentsAgain(&r)
		p.keepOperationsAgain(ctx, &r)
		p.buryUnread(ctx, &r)
		for some := range slices.Chunk(waiting, buriedAtOnce) {
			p.buryTakenOut(ctx, some)
		}
		p.keepHoldsAgain(ctx, &r)
	})
}

// takenOut returns the removed jobs that must become letters, and the number of removed jobs whose calls are under way.
// It drops those entries of Removed that are not jobs.
func (p *removals) takenOut(r *queue.Removal) (waiting []waitingJob, flying int) {
	w, known := p.W, map[uint64]struct{}{}
	w.EachLocked(w.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition != &p.Partition || q.Empty() {
			return
		}
		for seq := range q.Seqs {
			if _, gone := slices.BinarySearch(r.Seqs, seq); !gone {
				continue
			}
			known[seq] = struct{}{}
			t := q.UnderWay(seq)
			if t == nil {
				waiting = append(waiting, waitingJob{q.Key, seq})
				continue
			}
			flying++
			if j := lane.JobLocked(t); r.Remade {
				j.RememberEnd()
			}
		}
	})
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, seq := range r.Seqs {
		if _, job := known[seq]; !job {
			delete(p.Removed, seq)
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
	p.TellChange(strings.Join(what, "; "))
}

// renewEpoch stores this owner's epoch again as soon as the owner has a valid right to the partition. It blocks until
// the epoch is stored, the stream holds another owner's epoch, or the worker stops.
func (p *removals) renewEpoch(ctx context.Context) {
	for ctx.Err() == nil && !p.Lost.Load() {
		if !p.MayCall() {
			select {
			case <-p.W.Stopping: // the right may never come back
				return
			default:
			}
			if !stream.Sleep(ctx, lane.LeaseCheck) {
				return
			}
			continue
		}
		asking, cancel := context.WithTimeout(ctx, lane.LoadTimeout)
		fence, err := p.Markers.Fence(asking)
		if err == nil && fence == queue.FenceGone && p.MayCall() {
			err = p.Markers.Renew(asking, p.W.Env.Instance)
		}
		cancel()
		switch {
		case p.Lost.Load(): // the other owner may be this process again, with another tenure
			return
		case err == nil && fence == queue.FenceOther:
			p.fenced()
			return
		case err == nil:
			return
		}
		select {
		case <-p.W.Stopping:
			return
		default:
		}
		if !errors.Is(err, queue.ErrFenced) {
			p.W.Log.Error("could not store the owner's epoch again; no call of the partition starts until it is stored", "stream", p.Bucket.Name(), "err", err)
		}
		if !stream.Sleep(ctx, lane.LoadRetry) {
			return
		}
	}
}

// fenced drops the partition, because another owner has taken it.
func (p *removals) fenced() {
	p.W.Mu.Lock()
	p.Open = false
	p.W.Mu.Unlock()
	p.dropped(errors.New("another owner has taken the partition"))
}

// examineFence finds out in the background why the stream has refused an intent. It does not block.
func (p *removals) examineFence() {
	p.W.Mu.Lock()
	examined := p.examining
	p.examining = true
	p.W.Mu.Unlock()
	if examined {
		return
	}
	p.Bucket.LookForRemovals() // the jobs may be gone, too
	p.W.Running.Go(func() {
		p.renewEpoch(context.Background()) // the worker's stop ends it
		p.W.Mu.Lock()
		p.examining = false
		p.W.Mu.Unlock()
	})
}

// buryUnread stores letters of jobs that were removed before they were read.
func (p *removals) buryUnread(ctx context.Context, r *queue.Removal) {
	for _, seq := range slices.Sorted(maps.Keys(r.Unread)) {
		l := letterOfRemoved(p.Owned, r.Unread[seq], seq)
		if err := p.PersistOf(ctx, func() error { return p.W.Env.Letters.Bury(l) }); err != nil {
			p.W.Log.Error("a job that was deleted by hand gets no letter, because this replica gives its partition up", "key", l.Key, "seq", seq, "err", err)
			continue
		}
		p.W.Metrics.Finished.Count(lane.Deleted)
	}
}

// letterOfRemoved builds the letter of a removed job of which only the key and the sequence are known.
func letterOfRemoved(p *lane.Owned, key string, seq uint64) *deadletter.Letter {
	return &deadletter.Letter{
		API: p.W.Name, Key: key, Reason: deadletter.Unknown, BodyLeftOut: true, At: time.Now(), Billed: deadletter.NotBilled,
		Detail: settle.DeletedDetail(p.Bucket.Name(), seq), Origin: ledger.OriginOf(p.Bucket.Name(), seq, 0),
	}
}

// buryTakenOut makes letters of jobs that were deleted by hand. It blocks until the letters are stored.
func (p *removals) buryTakenOut(ctx context.Context, some []waitingJob) {
	w := p.W
	var storing sync.WaitGroup
	var ends []*lane.Job
	w.Update(func(s *schedule.Schedule) {
		for _, of := range some {
			q := s.Queues.Find(of.key)
			if q == nil || q.Partition != &p.Partition {
				continue
			}
			if q.Waits(of.seq) {
				t := s.Extract(q, of.seq)
				t.Settle()
				j := lane.JobLocked(t)
				j.Bind(w.Terms)
				p.RecallKeptLocked(j)
				storing.Go(func() { p.settler.BuryMissing(ctx, j, queue.DeletedByOthers) })
				continue
			}
			if t, _ := s.Cancel(of.key, of.seq); t != nil {
				j := lane.JobLocked(t)
				if j.Ended == nil {
					j.Ended = make(chan struct{})
				}
				ends = append(ends, j)
			}
		}
	})
	storing.Wait()
	for _, j := range ends {
		select {
		case <-j.Ended:
		case <-w.Stopped: // its slot never comes
			// At a hard stop nothing is stored.
			_ = p.PersistOf(ctx, func() error { return p.W.Env.Letters.Bury(letterOfRemoved(p.Owned, j.Queue.Key, j.Seq)) })
		case <-ctx.Done():
			return
		}
	}
}

// keepOperationsAgain stores removed marks of operations again whose jobs are still in the stream. It blocks until they
// are stored, the partition is lost, or ctx ends.
func (p *removals) keepOperationsAgain(ctx context.Context, r *queue.Removal) {
	gone := func(seq uint64) bool { _, in := slices.BinarySearch(r.Seqs, seq); return in }
	var unmarked []*lane.Job
	p.W.EachLocked(p.W.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition != &p.Partition {
			return
		}
		for t := range q.Polled {
			if j := lane.JobLocked(t); gone(j.Marks.Last) && !gone(j.Seq) {
				unmarked = append(unmarked, j)
			}
		}
	})
	for _, j := range unmarked {
		p.W.Mu.Lock()
		mark := settle.MarkOf(j)
		p.W.Mu.Unlock()
		var seq uint64
		err := p.PersistOf(ctx, func() (err error) {
			seq, err = p.Markers.Again(mark)
			return err
		})
		if err != nil {
			p.W.Log.Error("could not store the mark of an operation again that was deleted by hand: if the ledger has forgotten its call, a restart calls the job again",
				"stream", p.Bucket.Name(), "key", j.Queue.Key, "seq", j.Seq, "err", err)
			continue
		}
		p.W.Mu.Lock()
		if j.IsPolled() {
			j.Marks.Last = seq
		} else {
			p.Bucket.Discard(seq) // the job ends
		}
		p.W.Mu.Unlock()
	}
}

// keepIntentsAgain stores removed intents again whose jobs are still in the stream.
func (p *removals) keepIntentsAgain(r *queue.Removal) {
	gone := func(seq uint64) bool { _, in := slices.BinarySearch(r.Seqs, seq); return in }
	w := p.W
	var intents []queue.Intent
	var jobs []*lane.Job
	w.EachLocked(w.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition != &p.Partition {
			return
		}
		for t := range q.Jobs.Near {
			j, begun := t.Of.(*lane.Job)
			if begun && j.Announced.By != nil && !gone(j.Seq) && slices.ContainsFunc(j.Announced.Marks, func(m *lane.IntentMark) bool { return gone(m.Seq) }) {
				intents, jobs = append(intents, j.Intent(j.Announced.Call)), append(jobs, j)
			}
		}
	})
	if len(intents) == 0 {
		return
	}
	seq, err := p.Markers.Intend(intents...)
	if err != nil {
		p.unkept(err)
		return
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	mark := &lane.IntentMark{Seq: seq, Users: len(jobs)}
	for _, j := range jobs {
		if len(j.Announced.Marks) > 0 {
			j.Announced.Marks = append(j.Announced.Marks, mark)
		} else if mark.Users--; mark.Users == 0 { // all jobs have ended meanwhile
			p.Bucket.Discard(seq)
		}
	}
}

// keepHoldsAgain stores removed marks of holds again, one after another, until ctx ends or the partition is lost.
func (p *removals) keepHoldsAgain(ctx context.Context, r *queue.Removal) {
	w := p.W
	w.Mu.Lock()
	holds := maps.Clone(p.notes.Marks)
	w.Mu.Unlock()
	for key, m := range holds {
		if ctx.Err() != nil || p.Lost.Load() {
			return
		}
		if _, gone := slices.BinarySearch(r.Seqs, m.Seq); m.Part != p.Owned || !gone {
			continue
		}
		seq, err := p.Markers.Hold(key, w.WallTime(m.Until), "held before its mark was deleted by hand")
		if err != nil {
			p.unkept(err)
			continue
		}
		w.Mu.Lock()
		if p.notes.Marks[key] == m {
			p.notes.Marks[key] = lane.HoldMark{Part: p.Owned, Seq: seq, Until: m.Until}
		}
		w.Mu.Unlock()
	}
}

func (p *removals) unkept(err error) {
	p.W.Log.Error("could not store a deleted mark again: after a restart weir does not know the hold or the call that it records", "stream", p.Bucket.Name(), "err", err)
}
