package takeover

import (
	"cmp"
	"context"
	"slices"

	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// After a takeover, calls start while the partition's queue is still being read, so that a long queue does not keep
// every key waiting. Before a key is called, the owner must know which of its jobs were called before. The end of the
// ledger and the markers say this, and both are read before the jobs. So the owner knows, for each key, the last job
// with a history. The key's calls start when its jobs up to that one have been read. If no job of a key has a history,
// the first of its jobs that is read is its oldest, and was never called.

// replay holds the histories of a partition's jobs before the jobs are read. It belongs to the reader; other goroutines
// only check, under the lock, whether the partition has one.
type replay struct {
	found   map[uint64]*found               // markers in the stream, by the job's sequence
	records map[uint64]ledger.LastCall      // newest records in the ledger, by the job's sequence
	results map[uint64]ledger.StoredResult  // results whose records may be missing, by the job's sequence
	until   map[uint64]uint64               // by a key's sum: the key's last job with a history
	queue   []awaited                       // the entries of until, sorted by sequence
	blind   uint64                          // the last job that may hold every key; no call starts before it is read
	held    []*schedule.KeyQueue            // queues held by marks; they may have no jobs
	early   []*schedule.KeyQueue            // queues whose first job was read before the blind job
	waiting map[uint64][]*schedule.KeyQueue // by a key's sum: queues whose jobs up to until are not read yet
}

// awaited is a job that must be read before its key is called. sum is the key's sum.
type awaited struct{ seq, sum uint64 }

func newReplay() *replay {
	return &replay{found: map[uint64]*found{}, until: map[uint64]uint64{}, waiting: map[uint64][]*schedule.KeyQueue{}}
}

// await notes that a job has a history. holdsAll says that its history may hold every key of the api.
func (r *replay) await(seq, sum uint64, holdsAll bool) {
	r.until[sum] = max(r.until[sum], seq)
	if holdsAll {
		r.blind = max(r.blind, seq)
	}
}

// of returns the markers of a job's sequence. The caller may add to them.
func (r *replay) of(seq uint64) *found {
	f := r.found[seq]
	if f == nil {
		f = &found{}
		r.found[seq] = f
	}
	return f
}

// takeMarker notes a marker found in the stream.
func (p *reader) takeMarker(e queue.Entry) {
	p.W.Mu.Lock()
	defer p.W.Mu.Unlock()
	if e.Kind == queue.IntentEntry {
		p.replayIntent(e)
	} else {
		p.replayMark(e)
	}
}

func (p *reader) replayIntent(e queue.Entry) {
	intents, err := e.Intents()
	if err != nil {
		p.W.Log.Error("an intent cannot be decoded; ignored", "seq", e.Seq, "err", err)
		return
	}
	mark := &lane.IntentMark{Seq: e.Seq, Users: len(intents)}
	for _, i := range intents {
		f := p.replay.of(i.Seq)
		f.intents = append(f.intents, lane.FoundIntent{Intent: i, Mark: mark, Stored: e.Time})
		a := p.W.Env.Recorder.Find(i.Entry, p.CallOf(&i, i.Epoch)).Answer
		p.replay.await(i.Seq, i.KeySum, a != nil && a.Holds)
	}
	if mark.Users == 0 {
		p.Bucket.Discard(e.Seq)
	}
}

func (p *reader) replayMark(e queue.Entry) {
	mark, err := e.RetryMark()
	if err != nil {
		p.W.Log.Error("a retry mark cannot be decoded; ignored", "seq", e.Seq, "err", err)
		return
	}
	if mark.Ends == queue.ToldLost {
		p.Told.ReplayToldLocked(mark, e.Seq)
		return
	}
	if mark.Denied {
		p.notes.ReplayDenialLocked(p.Owned, mark, e)
		return
	}
	if mark.Seq == 0 {
		if q := p.notes.ReplayHoldLocked(p.Owned, mark, e.Seq); q != nil {
			p.replay.held = append(p.replay.held, q)
		}
		return
	}
	f := p.replay.of(mark.Seq)
	f.marks = append(f.marks, foundMark{mark, e.Seq, e.Time})
	p.replay.await(mark.Seq, mark.KeySum, mark.Pushback && p.W.Terms.API.Retry.HoldAPI || holdsSlot(mark.Operation))
}

// holdsSlot reports whether an operation holds a slot of limits that all keys share. Then no key is called before the
// operation's job has been read.
func holdsSlot(op *queue.Operation) bool { return op != nil && op.Holds }

// markersLoaded lets calls of a partition start, key by key as its jobs are read. The reader calls it once, after it
// has read all markers.
func (p *reader) markersLoaded() {
	r := p.replay
	r.records, r.results = p.W.Env.Tail.Detach(p.Bucket.Name())
	p.W.Mu.Lock()
	if p.Markers.AfterDeath() {
		p.Leftover = p.leftUntilLocked()
	}
	holdsAPI := p.W.Terms.API.Retry.HoldAPI
	p.W.Mu.Unlock()
	for seq, c := range r.records {
		r.await(seq, c.KeySum, c.PushedBack() && holdsAPI || holdsSlot(c.Operation))
	}
	for seq, result := range r.results {
		r.await(seq, result.KeySum, false)
	}
	for sum, seq := range r.until {
		r.queue = append(r.queue, awaited{seq, sum})
	}
	slices.SortFunc(r.queue, func(a, b awaited) int { return cmp.Compare(a.seq, b.seq) })
	p.W.EachLocked(slices.Values(r.held), func(q *schedule.KeyQueue) { p.admitKeyLocked(q) })
	if r.blind == 0 {
		p.resumeKeys()
	}
}

// resumeKeys lets calls of a partition start, because no job is left to be read that may hold every key.
func (p *reader) resumeKeys() {
	early := p.replay.early
	p.replay.blind, p.replay.early = 0, nil
	p.W.EachLocked(slices.Values(early), func(q *schedule.KeyQueue) {
		q.Met = false
		p.admitKeyLocked(q)
	})
	p.W.Mu.Lock()
	p.Open = !p.Stalled && !p.Closing && !p.Lost.Load()
	p.W.Mu.Unlock()
	p.W.WakeUp()
}

// admitKeyLocked admits a queue when its first job has been read. The queue's jobs may be called at once, or not before
// the jobs with a history have been read.
func (p *reader) admitKeyLocked(q *schedule.KeyQueue) {
	if q.Met {
		return
	}
	q.Met, q.Unread = true, true
	r, sum := p.replay, queue.KeySum(q.Key)
	_, known := r.until[sum]
	switch {
	case r.blind != 0:
		r.early = append(r.early, q)
	case known:
		r.waiting[sum] = append(r.waiting[sum], q)
	default:
		p.resumeKeyLocked(q)
	}
}

// takeFoundLocked queues or resumes one job that was found in the stream. It returns true if all keys that waited for
// this job may continue now. The caller must then call resumeKeys.
func (p *reader) takeFoundLocked(ctx context.Context, q *schedule.KeyQueue, e queue.Entry) (resume bool) {
	p.admitKeyLocked(q)
	h, outdated := p.replay.history(e)
	p.discardLocked(&outdated)
	if h == (jobHistory{}) {
		p.resumeDuplicateLocked(ctx, q, e)
	} else {
		p.resumeLocked(ctx, q, e, h)
	}
	return p.passedLocked(e.Seq)
}

// passedLocked resumes the keys that waited until the job at seq was read. It returns true if that was the last job
// that may hold every key.
func (p *reader) passedLocked(seq uint64) (all bool) {
	r := p.replay
	for len(r.queue) > 0 && r.queue[0].seq <= seq {
		sum := r.queue[0].sum
		for _, q := range r.waiting[sum] {
			p.resumeKeyLocked(q)
		}
		delete(r.waiting, sum)
		delete(r.until, sum)
		r.queue = r.queue[1:]
	}
	return r.blind != 0 && r.blind <= seq
}

// resumeKeyLocked lets a queue be called, at its key's former pace.
func (p *reader) resumeKeyLocked(q *schedule.KeyQueue) {
	if p.W.Sched.Queues.Find(q.Key) != q {
		return // all jobs of the queue have ended meanwhile
	}
	q.Unread = false
	p.leaveLocked(q)
	p.pace.goOnLocked(q, p.unsureLocked(q))
	p.W.Sched.Queues.Touch(q)
	p.W.WakeUp()
}

// open ends a partition's replay when everything has been read that was in the stream at the takeover. It deletes
// markers whose jobs are gone, and resumes every key that still waits.
func (p *reader) open(ctx context.Context) {
	r := p.replay
	p.W.Mu.Lock()
	if p.Closing || p.Lost.Load() {
		p.W.Mu.Unlock()
		return // the next owner reads the rest
	}
	for _, f := range r.found { // their jobs are gone
		p.discardLocked(f)
	}
	p.W.Mu.Unlock()
	p.stock.takeStock(ctx)
	if r.blind != 0 {
		p.resumeKeys()
	}
	for _, queues := range r.waiting {
		p.W.EachLocked(slices.Values(queues), p.resumeKeyLocked)
	}
	p.W.Mu.Lock()
	p.replay, p.Reading = nil, false
	p.W.Mu.Unlock()
	p.W.EachLocked(p.W.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition && q.Delays() {
			p.W.Sched.Queues.Touch(q)
		}
	})
	p.W.WakeUp()
}

// discardLocked deletes markers that no job needs.
func (p *reader) discardLocked(f *found) {
	for _, i := range f.intents {
		if i.Mark.Users--; i.Mark.Users == 0 {
			p.Bucket.Discard(i.Mark.Seq)
		}
	}
	for _, m := range f.marks {
		p.Bucket.Discard(m.seq)
	}
}
