package dispatcher

import (
	"cmp"
	"context"
	"slices"

	"weir/bucket/queue"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// Calls of a partition that is taken over start while its queue is still being read: a long one would keep every key waiting.
// What must be known before is what was called. The ledger's end tells, and the markers, which are read before the jobs. So
// for every key it is known up to which job anything is known of it: its calls start when its jobs have been read up to
// there. Of a key nothing is known of, the first job that is read is its oldest, and was never called.

// replay is what is known of a partition's jobs before they are read. It is the reader's: others only look, under the lock, whether there
// is one.
type replay struct {
	found   map[uint64]*found               // in the stream, by job
	records map[uint64]ledger.LastCall      // in the ledger
	results map[uint64]ledger.StoredResult  // whose records may be missing
	until   map[uint64]uint64               // by a key's sum: the last of its jobs that anything is known of
	queue   []awaited                       // the same, by sequence
	blind   uint64                          // the last job of which something known holds every key: nothing is called before
	held    []*schedule.KeyQueue            // by marks of holds, perhaps without jobs
	early   []*schedule.KeyQueue            // queues that were met before the blind one
	waiting map[uint64][]*schedule.KeyQueue // by a key's sum: queues whose jobs must be read up to until
	full    bool                            // as many bodies are kept as may be
}

// awaited is a job that is to be read before its key is called.
type awaited struct{ seq, sum uint64 }

func newReplay() *replay {
	return &replay{found: map[uint64]*found{}, until: map[uint64]uint64{}, waiting: map[uint64][]*schedule.KeyQueue{}}
}

// await notes that something is known of a job, by which every key may be held.
func (r *replay) await(seq, sum uint64, holdsAll bool) {
	r.until[sum] = max(r.until[sum], seq)
	if holdsAll {
		r.blind = max(r.blind, seq)
	}
}

func (r *replay) of(seq uint64) *found {
	f := r.found[seq]
	if f == nil {
		f = &found{}
		r.found[seq] = f
	}
	return f
}

// takeMarker notes a marker found in the stream.
func (p *partition) takeMarker(e queue.Entry) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if e.Kind == queue.IntentEntry {
		p.replayIntent(e)
	} else {
		p.replayMark(e)
	}
}

func (p *partition) replayIntent(e queue.Entry) {
	intents, err := e.Intents()
	if err != nil {
		p.w.log.Error("an intent cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	mark := &intentMark{seq: e.Seq, users: len(intents)}
	for _, i := range intents {
		f := p.replay.of(i.Seq)
		f.intents = append(f.intents, foundIntent{i, mark, e.Time})
		p.replay.await(i.Seq, i.KeySum, false)
	}
	if mark.users == 0 {
		p.bucket.Discard(e.Seq)
	}
}

func (p *partition) replayMark(e queue.Entry) {
	mark, err := e.RetryMark()
	if err != nil {
		p.w.log.Error("a retry mark cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	if mark.Ends == queue.ToldLost {
		p.replayToldLocked(mark, e.Seq)
		return
	}
	if mark.Denied {
		p.replayDenialLocked(mark, e)
		return
	}
	if mark.Seq == 0 {
		p.replayHoldLocked(mark, e.Seq)
		return
	}
	f := p.replay.of(mark.Seq)
	f.marks = append(f.marks, foundMark{mark, e.Seq})
	p.replay.await(mark.Seq, mark.KeySum, mark.Pushback && p.w.terms.api.Retry.HoldAPI)
}

// markersLoaded lets calls of a partition start, key by key as its jobs are read: all markers are known. The reader calls it once.
func (p *partition) markersLoaded() {
	r := p.replay
	r.records, r.results = p.w.d.tail.Detach(p.bucket.Name())
	p.w.mu.Lock()
	if p.markers.AfterDeath() {
		p.Leftover = p.leftUntilLocked()
	}
	holdsAPI := p.w.terms.api.Retry.HoldAPI
	p.w.mu.Unlock()
	for seq, c := range r.records {
		r.await(seq, c.KeySum, c.PushedBack() && holdsAPI)
	}
	for seq, result := range r.results {
		r.await(seq, result.KeySum, false)
	}
	for sum, seq := range r.until {
		r.queue = append(r.queue, awaited{seq, sum})
	}
	slices.SortFunc(r.queue, func(a, b awaited) int { return cmp.Compare(a.seq, b.seq) })
	p.w.eachLocked(slices.Values(r.held), func(q *schedule.KeyQueue) { p.admitKeyLocked(q) })
	if r.blind == 0 {
		p.resumeKeys()
	}
}

// resumeKeys lets calls of a partition start: no job is left that may hold every key.
func (p *partition) resumeKeys() {
	early := p.replay.early
	p.replay.blind, p.replay.early = 0, nil
	p.w.eachLocked(slices.Values(early), func(q *schedule.KeyQueue) {
		q.Met = false
		p.admitKeyLocked(q)
	})
	p.w.mu.Lock()
	p.Open = !p.Stalled && !p.closing && !p.lost.Load()
	p.w.mu.Unlock()
	p.w.wakeUp()
}

// admitKeyLocked takes up a queue that has its first job, or its first again, and lets it be called or has it wait.
func (p *partition) admitKeyLocked(q *schedule.KeyQueue) {
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

// takeFoundLocked takes up one job that was found in the stream. It reports whether all keys may go on now that waited for it: then
// resumeKeys is to be called.
func (p *partition) takeFoundLocked(ctx context.Context, q *schedule.KeyQueue, e queue.Entry) (resume bool) {
	p.admitKeyLocked(q)
	h, outdated := p.replay.history(e)
	p.discardLocked(&outdated)
	if h == (jobHistory{}) {
		p.resumeDuplicateLocked(ctx, q, e)
	} else {
		p.resumeLocked(ctx, q, e.Seq, h)
	}
	return p.passedLocked(e.Seq)
}

// passedLocked lets those keys go on that needed the jobs up to a sequence, and reports whether that is all of them.
func (p *partition) passedLocked(seq uint64) (all bool) {
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

// resumeKeyLocked lets a queue be called.
func (p *partition) resumeKeyLocked(q *schedule.KeyQueue) {
	if !p.w.s.Has(q) {
		return // it came to its end meanwhile
	}
	q.Unread = false
	p.leaveLocked(q)
	p.w.pace.goOnLocked(q, p.unsureLocked(q))
	p.w.s.Touch(q)
	p.w.wakeUp()
}

// open ends a partition's replay: all that was in its stream has been read. Every job found there was in one of four states,
// by its markers and the ledger: never called; called and known to need another call; finished, only its deletion was lost;
// or called with an outcome that nobody knows.
func (p *partition) open() {
	r := p.replay
	p.w.mu.Lock()
	if p.closing || p.lost.Load() {
		p.w.mu.Unlock()
		return // what was not read is the next owner's
	}
	for _, f := range r.found { // of jobs that are gone
		p.discardLocked(f)
	}
	p.w.mu.Unlock()
	if r.blind != 0 {
		p.resumeKeys()
	}
	for _, queues := range r.waiting {
		p.w.eachLocked(slices.Values(queues), p.resumeKeyLocked)
	}
	p.w.mu.Lock()
	p.replay, p.Reading = nil, false
	p.w.mu.Unlock()
	p.w.eachLocked(p.w.s.Queues(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition {
			p.w.s.Read(q)
		}
	})
	p.w.wakeUp()
}
