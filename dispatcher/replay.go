package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
)

// Calls of a partition that is taken over start while its queue is still being read: a long one would keep every key waiting.
// What must be known before is what was called. The ledger's end tells, and the markers, which are read before the jobs. So
// for every key it is known up to which job anything is known of it: its calls start when its jobs have been read up to
// there. Of a key nothing is known of, the first job that is read is its oldest, and was never called.

// replay is what is known of a partition's jobs before they are read.
type replay struct {
	found   map[uint64]*found              // in the stream, by job
	records map[uint64]ledger.LastCall     // in the ledger
	results map[uint64]ledger.StoredResult // whose records may be missing
	until   map[uint64]uint64              // by a key's sum: the last of its jobs that anything is known of
	queue   []awaited                      // the same, by sequence
	blind   uint64                         // the last job that a marker speaks of without telling its key: nothing is called before
	held    []*line                        // by marks of holds, perhaps without jobs
	early   []*line                        // lines that were met before the blind one
	waiting map[uint64][]*line             // by a key's sum: lines whose jobs must be read up to until
	late    []*line                        // lines that wait until all has been read
	full    bool                           // as many bodies are kept as may be
}

// awaited is a job that is to be read before its key is called.
type awaited struct{ seq, sum uint64 }

// found is what markers say of one job, or of another one that once had its sequence.
type found struct {
	intents []foundIntent
	marks   []foundMark
}

type foundIntent struct {
	queue.Intent
	mark   *intentMark
	stored time.Time
}

// overrules reports whether a call may have been made after the mark of an end was decided on: the intent stands behind it, or
// is of a later owner. A mark may arrive late, sent by an owner that had the right to and lost it while its connection stalled;
// whoever took the partition over knew nothing of it.
func (i *foundIntent) overrules(end *foundMark) bool {
	return i.mark.seq > end.seq || i.Epoch > end.Epoch && end.Epoch != 0
}

type foundMark struct {
	queue.RetryMark
	seq uint64
}

func newReplay() *replay {
	return &replay{found: map[uint64]*found{}, until: map[uint64]uint64{}, waiting: map[uint64][]*line{}}
}

// await notes that something is known of a job.
func (r *replay) await(seq, sum uint64) {
	if sum == 0 {
		r.blind = max(r.blind, seq)
		return
	}
	r.until[sum] = max(r.until[sum], seq)
}

func (r *replay) of(seq uint64) *found {
	f := r.found[seq]
	if f == nil {
		f = &found{}
		r.found[seq] = f
	}
	return f
}

// mark notes a marker found in the stream.
func (l *lane) mark(p *part, e queue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == queue.IntentEntry {
		l.replayIntent(p, e)
	} else {
		l.replayMark(p, e)
	}
}

func (l *lane) replayIntent(p *part, e queue.Entry) {
	intents, err := e.Intents()
	if err != nil {
		l.log.Error("an intent cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	mark := &intentMark{seq: e.Seq, users: len(intents)}
	for _, i := range intents {
		f := p.replay.of(i.Seq)
		f.intents = append(f.intents, foundIntent{i, mark, e.Time})
		p.replay.await(i.Seq, i.KeySum)
	}
	if mark.users == 0 {
		p.bucket.Discard(e.Seq)
	}
}

func (l *lane) leaveMark(p *part, mark *intentMark) {
	if mark.users--; mark.users == 0 {
		p.bucket.Discard(mark.seq)
	}
}

func (l *lane) replayMark(p *part, e queue.Entry) {
	mark, err := e.RetryMark()
	if err != nil {
		l.log.Error("a retry mark cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	if mark.Denied {
		l.replayDenialLocked(p, mark, e)
		return
	}
	if mark.Seq == 0 {
		l.replayHoldLocked(p, mark, e.Seq)
		return
	}
	f := p.replay.of(mark.Seq)
	f.marks = append(f.marks, foundMark{mark, e.Seq})
	p.replay.await(mark.Seq, mark.KeySum)
	if mark.Pushback && l.s.terms.api.Retry.HoldAPI {
		p.replay.await(mark.Seq, 0) // it holds every key
	}
}

// marked lets calls of a partition start, key by key as its jobs are read: all markers are known. Called once.
func (l *lane) marked(p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := p.replay
	if p.markers.AfterDeath() {
		p.untold = !p.markers.Told()
		p.leftover = l.leftUntilLocked(p)
	}
	r.records, r.results = l.d.tail.Detach(p.bucket.Name())
	seen := 0
	for seq, c := range r.records {
		if r.await(seq, c.KeySum); c.PushedBack() && l.s.terms.api.Retry.HoldAPI {
			r.await(seq, 0)
		}
		l.breathe(&seen)
	}
	for seq, result := range r.results {
		r.await(seq, result.KeySum)
		l.breathe(&seen)
	}
	for sum, seq := range r.until {
		r.queue = append(r.queue, awaited{seq, sum})
		l.breathe(&seen)
	}
	slices.SortFunc(r.queue, func(a, b awaited) int { return cmp.Compare(a.seq, b.seq) })
	for _, line := range r.held {
		l.meet(p, line)
	}
	if r.blind == 0 {
		l.letGoOn(p)
	}
}

// letGoOn lets calls of a partition start.
func (l *lane) letGoOn(p *part) {
	p.replay.blind = 0
	early := p.replay.early
	p.replay.early = nil
	seen := 0
	for _, line := range early {
		line.met = false
		l.meet(p, line)
		l.breathe(&seen)
	}
	p.open = !p.stalled && !p.closing && !p.lost.Load()
	l.kick()
}

// meet takes up a line that has its first job, or its first again, and lets it be called or has it wait.
func (l *lane) meet(p *part, line *line) {
	if line.met {
		return
	}
	line.met, line.unread = true, true
	r, sum := p.replay, queue.KeySum(line.key)
	_, known := r.until[sum]
	switch {
	case r.blind != 0:
		r.early = append(r.early, line)
	case p.leftover != 0 && l.untoldLocked(line): // how many of its calls may still run depends on how many jobs it has
		r.late = append(r.late, line)
	case known:
		r.waiting[sum] = append(r.waiting[sum], line)
	default:
		l.goOn(line)
	}
}

// takeFoundLocked takes up one job that was found in the stream.
func (l *lane) takeFoundLocked(ctx context.Context, p *part, line *line, e queue.Entry) {
	l.meet(p, line)
	h, ok := l.historyOfLocked(p, e)
	l.suspectUnloggedLocked(line, h)
	if ok {
		l.resumeLocked(ctx, line, e.Seq, h)
	} else {
		l.resumeTwinLocked(ctx, p, line, e)
	}
	l.passed(p, e.Seq)
}

// passed lets those keys go on that needed the jobs up to a sequence.
func (l *lane) passed(p *part, seq uint64) {
	r := p.replay
	for len(r.queue) > 0 && r.queue[0].seq <= seq {
		sum := r.queue[0].sum
		for _, line := range r.waiting[sum] {
			l.goOn(line)
		}
		delete(r.waiting, sum)
		delete(r.until, sum)
		r.queue = r.queue[1:]
	}
	if r.blind != 0 && r.blind <= seq {
		l.letGoOn(p)
	}
}

// goOn lets a line be called.
func (l *lane) goOn(line *line) {
	if l.s.lines[line.key] != line {
		return // it came to its end meanwhile
	}
	line.unread = false
	l.paceLocked(line, l.now())
	l.s.touch(line)
	l.kick()
}

// history is what is known of a job that was found in the stream.
type history struct {
	intent *foundIntent
	mark   *foundMark
	last   *ledger.LastCall
	result *ledger.StoredResult
}

// historyOfLocked gathers what is known of a job; ok is false when that is nothing. It lets go of markers that are outdated,
// and of those of another job: a call that ran while a server lost its last writes leaves its marker behind the job that has
// its sequence since.
func (l *lane) historyOfLocked(p *part, e queue.Entry) (h history, ok bool) {
	r, stored := p.replay, bucket.MicrosOf(e.Time)
	if f := r.found[e.Seq]; f != nil {
		delete(r.found, e.Seq)
		for i := range f.intents {
			switch n := &f.intents[i]; {
			case n.Accepted != 0 && n.Accepted != stored, h.intent != nil && h.intent.Call > n.Call:
				l.leaveMark(p, n.mark)
			default:
				if h.intent != nil {
					l.leaveMark(p, h.intent.mark)
				}
				h.intent = n
			}
		}
		for i := range f.marks {
			switch n := &f.marks[i]; {
			case n.Accepted != 0 && n.Accepted != stored,
				h.mark != nil && n.Ends == "" && (h.mark.Ends != "" || h.mark.Calls >= n.Calls):
				p.bucket.Discard(n.seq)
			default:
				if h.mark != nil {
					p.bucket.Discard(h.mark.seq)
				}
				h.mark = n
			}
		}
	}
	// A record or a result of another job stands there too where the stream was deleted since, and counts from 1 again.
	if c, ok := r.records[e.Seq]; ok && c.Of(e) {
		h.last = &c
	}
	if s, ok := r.results[e.Seq]; ok && s.Of(e) {
		h.result = &s
	}
	return h, h != history{}
}

// open ends a partition's replay: all that was in its stream has been read. Every job found there was in one of four states,
// by its markers and the ledger: never called; called and known to need another call; finished, only its deletion was lost;
// or called with an outcome that nobody knows.
func (l *lane) open(p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.closing || p.lost.Load() {
		return // what was not read is the next owner's
	}
	r := p.replay
	for _, f := range r.found { // of jobs that are gone
		for _, i := range f.intents {
			l.leaveMark(p, i.mark)
		}
		for _, m := range f.marks {
			p.bucket.Discard(m.seq)
		}
	}
	if r.blind != 0 {
		l.letGoOn(p)
	}
	seen := 0
	for _, lines := range r.waiting {
		for _, line := range lines {
			l.goOn(line)
			l.breathe(&seen)
		}
	}
	for _, line := range r.late {
		l.goOn(line)
		l.breathe(&seen)
	}
	p.replay = nil
}

// breathe lets others at the lock now and then: a partition with a million jobs must not keep the calls of the others.
func (l *lane) breathe(seen *int) {
	if *seen++; *seen%lookAtOnce == 0 {
		l.mu.Unlock()
		l.mu.Lock()
	}
}
