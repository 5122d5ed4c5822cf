package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket/stream"
	"weir/ingest"
)

// A producer that tries again at once is refused many times, and means one job. So refusals of the same job for the same reason are one
// letter as long as the job's id would be known, and the letter counts them. The same job is: the same id that its producer chose, key,
// headers and body; the trace aside, which is each try's own. A job without an id of its own is a new one each time.
//
// The first refusal stores the letter. A later one is answered with its number, on the word of the stream that it still stands: whoever
// redrives or purges it meanwhile makes the next refusal a letter again. When the count has grown tenfold the letter is written anew
// with it, and an event tells. The new letter is stored before the old one is deleted, and names it: what a death in between leaves
// twice is deleted by the next start (healReplaced).
//
// What several replicas refuse, and what is refused again after a restart, the stream itself holds together: the letter's message id is
// made of the job, so the second one is answered with the first one's number, for an hour. Each replica counts its own refusals, and
// goes on from what the letter says.

// Bounds of what is remembered of refusals.
const (
	mostRefusals    = 65536 // jobs; the oldest is forgotten first, and found again by the stream
	mostLives       = 16    // of a job's letters that are tried to be found by their message ids
	refusalCheckers = 32    // jobs whose letters are looked at, at once
	waitingChecks   = 1024  // jobs that wait for that; beyond it a refusal is a letter of its own
	refusalsKnown   = 10 * time.Minute
	lookBackLetters = 20_000 // that a start looks through for what was left twice
)

// refusalID names a refused job and why: a hash.
type refusalID [16]byte

// identifyRefusal is the id of a refusal; false where it is of no job that could be told from others.
func identifyRefusal(r *ingest.Refused) (id refusalID, ok bool) {
	if r.Redrives > 0 || !namedByProducer(r) {
		return id, false
	}
	h := sha256.New()
	part := func(text string) { _, _ = fmt.Fprintf(h, "%d:%s", len(text), text) } // a hash never fails
	part(r.API)
	part(r.Key)
	part(r.JobID)
	part(strconv.Itoa(int(r.Refusal.Code)))
	if r.Refusal.Code != ingest.Throttled {
		part(r.Refusal.Description) // another mistake
	}
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		if !strings.EqualFold(name, ingest.HeaderTrace) && !strings.EqualFold(name, ingest.HeaderTraceState) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		part(name)
		for _, value := range r.Header[name] {
			part(value)
		}
	}
	part("") // ends the headers
	_, _ = h.Write(r.Body)
	copy(id[:], h.Sum(nil))
	return id, true
}

// namedByProducer reports whether the id of a refused job is one that its producer gave it.
func namedByProducer(r *ingest.Refused) bool {
	for name, values := range r.Header {
		if (strings.EqualFold(name, ingest.HeaderMsgID) || strings.EqualFold(name, ingest.HeaderJobID)) && slices.Contains(values, r.JobID) {
			return r.JobID != ""
		}
	}
	return false
}

// refusedPrefix begins the message ids of such letters, behind letterIDPrefix.
const refusedPrefix = "refused-"

// msgID is the message id of the job's letter number life.
func (id refusalID) msgID(life int) string {
	return letterIDPrefix + refusedPrefix + hex.EncodeToString(id[:]) + "-" + strconv.Itoa(life)
}

// of reports whether a stored letter is one of this refusal.
func (id refusalID) of(h nats.Header) bool {
	return strings.HasPrefix(h.Get(ingest.HeaderMsgID), letterIDPrefix+refusedPrefix+hex.EncodeToString(id[:])+"-")
}

// refusedJob is a job that was refused, and its letter. The lock of its refusals guards it.
type refusedJob struct {
	id      refusalID
	first   time.Time
	count   int    // refusals
	seq     uint64 // of the letter, 0 while there is none
	written int    // the count that it says
	life    int    // number of the next letter
	busy    bool   // somebody stores its letter or looks at it
	waiting []refusalWaiting
}

// refusalWaiting is a refusal that is answered when its job's letter is known to stand.
type refusalWaiting struct {
	letter *Letter
	event  func(seq uint64, refusals int) Event
	done   func(seq uint64, err error)
}

// refusals are the jobs that were refused lately. They are safe for concurrent use.
type refusals struct {
	known  func() time.Duration
	checks chan *refusedJob

	mu      sync.Mutex // guards what follows
	jobs    map[refusalID]*refusedJob
	order   []*refusedJob // by their first refusal
	waiting int           // refusals that wait
	ended   bool
}

func newRefusals(known func() time.Duration) *refusals {
	if known == nil {
		known = func() time.Duration { return refusalsKnown }
	}
	return &refusals{known: known, checks: make(chan *refusedJob, waitingChecks), jobs: map[refusalID]*refusedJob{}}
}

// enter takes a refusal in. first: its job has no letter yet, and the caller stores it. taken: it is answered when its job's letter has been
// looked at. Neither: it is to be a letter of its own.
func (x *refusals) enter(id refusalID, w refusalWaiting, now time.Time) (j *refusedJob, first, taken bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(now)
	if x.ended || x.waiting >= maxWaiting {
		return nil, false, false
	}
	j = x.jobs[id]
	if j == nil && len(x.jobs) >= mostRefusals {
		return nil, false, false
	}
	if j == nil {
		j = &refusedJob{id: id, first: now, count: 1, busy: true}
		x.jobs[id], x.order = j, append(x.order, j)
		return j, true, false
	}
	if !j.busy {
		select {
		case x.checks <- j:
			j.busy = true
		default:
			return nil, false, false
		}
	}
	j.count++
	j.waiting = append(j.waiting, w)
	x.waiting++
	return j, false, true
}

// forgetLocked drops what is known no more. A job that is being looked at is forgotten later.
func (x *refusals) forgetLocked(now time.Time) {
	n, known := 0, x.known()
	for n < len(x.order) && (now.Sub(x.order[n].first) > known || len(x.jobs) > mostRefusals-1) && !x.order[n].busy {
		delete(x.jobs, x.order[n].id)
		n++
	}
	if x.order = x.order[n:]; len(x.order) == 0 {
		x.order = nil
	}
}

// stood notes a job's letter and answers all that wait for it, or, with an error, forgets the job.
func (x *refusals) stood(j *refusedJob, seq uint64, err error) {
	x.mu.Lock()
	waiting := j.waiting
	j.waiting, j.busy, j.seq = nil, false, seq
	x.waiting -= len(waiting)
	if err != nil && x.jobs[j.id] == j {
		delete(x.jobs, j.id)
		x.order = slices.DeleteFunc(x.order, func(other *refusedJob) bool { return other == j })
	}
	x.mu.Unlock()
	for _, w := range waiting {
		w.done(seq, err)
	}
}

// refuseOnce stores the letter of a refused job, or counts the refusal for the letter that there is.
func (o *Writer) refuseOnce(l *Letter, id refusalID, w refusalWaiting) bool {
	j, first, taken := o.refusals.enter(id, w, time.Now())
	if first {
		o.storeRefused(j, l, w)
	}
	return first || taken
}

// storeRefused stores a job's letter under its next message id.
func (o *Writer) storeRefused(j *refusedJob, l *Letter, w refusalWaiting) {
	l.refusedID = j.id.msgID(j.life)
	o.letters.Begin(l.Message(), func(told stream.Answer) {
		switch {
		case told.Err != nil:
			err := fmt.Errorf("dead letter: %w", told.Err)
			w.done(0, err)
			o.refusals.stood(j, 0, err)
			return
		case told.Duplicate: // another replica's letter, or one of before a restart: it is looked at where that may block
			o.refusals.adopt(j, told.Seq, w)
			return
		}
		j.life++
		j.written = max(1, l.Refusals)
		o.told(l, told.Seq, w, func(err error) {
			w.done(told.Seq, err)
			if err != nil || !o.refusals.lookAgain(j, told.Seq) {
				o.refusals.stood(j, told.Seq, err)
			}
		})
	})
}

// lookAgain has a letter looked at that has just been stored, where refusals have come meanwhile: they may have made it grow. It reports
// whether it is looked at.
func (x *refusals) lookAgain(j *refusedJob, seq uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	j.seq = seq
	if len(j.waiting) == 0 || x.ended {
		return false
	}
	select {
	case x.checks <- j:
		return true
	default:
		return false
	}
}

// adopt has a letter looked at that the stream had already.
func (x *refusals) adopt(j *refusedJob, seq uint64, w refusalWaiting) {
	x.mu.Lock()
	j.seq = seq
	j.waiting = append([]refusalWaiting{w}, j.waiting...)
	x.waiting++
	ended := x.ended
	x.mu.Unlock()
	if ended {
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrStopping))
		return
	}
	select {
	case x.checks <- j:
	default:
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrWriterFull))
	}
}

// told sends the event of a refused job's letter, and its notice, and calls done once.
func (o *Writer) told(l *Letter, seq uint64, w refusalWaiting, done func(err error)) {
	e := w.event(seq, l.Refusals)
	e.ID = l.refusedID // where a replica died before it had sent it, another one does
	o.Send(e, func(err error) {
		if err == nil {
			o.buried.WithLabelValues(ingest.Token(l.API), string(l.Reason)).Inc()
			o.notify(l)
		}
		done(err)
	})
}

// checkRefusals looks at the letters of jobs that are refused again, until ctx ends.
func (o *Writer) checkRefusals(ctx context.Context) error {
	for {
		select {
		case j := <-o.refusals.checks:
			o.checkRefused(ctx, j)
		case <-ctx.Done():
			o.refusals.end(context.Cause(ctx))
			return nil
		}
	}
}

// end answers all that wait.
func (x *refusals) end(cause error) {
	x.mu.Lock()
	x.ended = true
	jobs := slices.Clone(x.order)
	x.mu.Unlock()
	for _, j := range jobs {
		x.stood(j, 0, fmt.Errorf("not stored: %w", cause))
	}
}

// checkRefused answers the refusals of a job that wait for its letter: with its number where it stands. Where it does not, the first of
// them becomes a letter. It blocks while the stream answers.
func (o *Writer) checkRefused(ctx context.Context, j *refusedJob) {
	o.refusals.mu.Lock()
	seq, asked, adopted := j.seq, len(j.waiting), j.written == 0
	if asked == 0 { // all were answered when the Writer ended
		o.refusals.mu.Unlock()
		return
	}
	newest := j.waiting[asked-1]
	o.refusals.mu.Unlock()
	k, err := (&Browser{js: o.js}).Get(ctx, seq)
	gone := errors.Is(err, ErrNoLetter) || err == nil && (!j.id.of(k.Header) || time.Since(k.Stored) > o.refusals.known())
	switch {
	case err != nil && !gone:
		o.refusals.stood(j, 0, fmt.Errorf("the letter of a job that was refused before: %w", err))
		return
	case gone:
		o.buryAgain(j)
		return
	}
	before := max(1, k.Refusals)
	if adopted {
		told, err := o.toldBefore(&k, newest)
		if err != nil {
			o.refusals.stood(j, 0, err)
			return
		}
		if !told && k.Refusals <= 1 {
			before = 0 // it is this refusal's own, sent twice, or that of one whose producer was never answered
		}
	}
	o.refusals.mu.Lock()
	switch {
	case adopted:
		j.count += before
	case k.Refusals > j.written: // another replica has counted on
		j.count = max(j.count, k.Refusals+asked)
	}
	j.written, j.life = max(1, k.Refusals), max(j.life, lifeOf(k.Header)+1)
	count, grown := j.count, tens(j.count) > tens(j.written)
	o.refusals.mu.Unlock()
	if grown {
		seq = o.replaceRefused(ctx, j, &k, count, newest)
	}
	o.answerAsked(j, seq, asked)
}

// toldBefore sends the event of a letter that the stream had already, and reports whether it had been sent before: the stream of events knows
// its id as long as that of letters knows theirs. It blocks until the event is stored.
func (o *Writer) toldBefore(k *Kept, w refusalWaiting) (before bool, err error) {
	e := w.event(k.Seq, k.Refusals)
	e.ID = k.Header.Get(ingest.HeaderMsgID)
	switch a := o.events.Write(e.message(time.Now())); {
	case a.Err != nil:
		return false, fmt.Errorf("event %s: %w", e.Type, a.Err)
	case a.Duplicate:
		return true, nil
	}
	o.buried.WithLabelValues(ingest.Token(w.letter.API), string(w.letter.Reason)).Inc()
	o.notify(w.letter)
	return false, nil
}

// answerAsked answers the refusals that came before the letter was looked at, and has it looked at again for the others.
func (o *Writer) answerAsked(j *refusedJob, seq uint64, asked int) {
	x := o.refusals
	x.mu.Lock()
	j.seq = seq
	if len(j.waiting) <= asked {
		x.mu.Unlock()
		x.stood(j, seq, nil)
		return
	}
	answered := slices.Clone(j.waiting[:asked])
	j.waiting = slices.Delete(j.waiting, 0, asked)
	x.waiting -= asked
	x.mu.Unlock()
	for _, w := range answered {
		w.done(seq, nil)
	}
	select {
	case x.checks <- j:
	default:
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrWriterFull))
	}
}

// buryAgain makes the first refusal that waits a letter: the one that there was is gone.
func (o *Writer) buryAgain(j *refusedJob) {
	x := o.refusals
	x.mu.Lock()
	w := j.waiting[0]
	j.waiting = slices.Delete(j.waiting, 0, 1)
	x.waiting--
	j.count, j.first = 1+len(j.waiting), time.Now()
	if j.seq, j.life = 0, j.life+1; j.life > mostLives {
		j.life = int(time.Now().UnixMilli()) // nobody else's
	}
	x.mu.Unlock()
	o.storeRefused(j, w.letter, w)
}

// replaceRefused writes a job's letter anew with its count, and deletes the old one. It gives the number of the letter that stands.
func (o *Writer) replaceRefused(ctx context.Context, j *refusedJob, old *Kept, count int, w refusalWaiting) uint64 {
	l := *w.letter
	l.Refusals, l.Replaces, l.Accepted = count, old.Seq, old.Accepted
	l.refusedID = j.id.msgID(j.life)
	told := o.letters.Write(l.Message())
	if told.Err != nil || told.Duplicate {
		o.logOf(&l).Warn("a letter could not be written anew with the number of its refusals; it stays as it is", "err", told.Err)
		return old.Seq
	}
	e := w.event(told.Seq, count)
	e.ID = l.refusedID
	if a := o.events.Write(e.message(time.Now())); a.Err != nil {
		o.logOf(&l).Warn("the event of a job that is refused again and again could not be stored", "err", a.Err)
	}
	o.refusals.mu.Lock()
	j.life++
	j.written = count
	o.refusals.mu.Unlock()
	o.deleteReplaced(ctx, old.Seq)
	return told.Seq
}

func (o *Writer) deleteReplaced(ctx context.Context, seq uint64) {
	b, err := OpenBrowser(ctx, o.js)
	if err == nil {
		err = b.Delete(ctx, seq)
	}
	if err != nil {
		o.log.Warn("a letter that was written anew stands twice until weir starts again", "seq", seq, "err", err)
	}
}

// healReplaced deletes letters that were written anew, where a death kept them from being deleted.
func (o *Writer) healReplaced(ctx context.Context) error {
	b, err := OpenBrowser(ctx, o.js)
	if err != nil {
		o.log.Warn("letters were not looked through for such as stand twice", "err", err)
		return nil
	}
	looked, replaced := 0, []Kept{}
	err = b.Newest(ctx, Filter{Since: time.Now().Add(-lettersKnown)}, lookBackLetters, func(k Kept) error {
		if looked++; k.Replaces > 0 && k.Replaces < k.Seq {
			replaced = append(replaced, k)
		}
		return nil
	})
	for i := range replaced {
		old, getErr := b.Get(ctx, replaced[i].Replaces)
		if getErr == nil && sameRefusal(old.Header, replaced[i].Header) {
			err = errors.Join(err, b.Delete(ctx, old.Seq))
		}
	}
	if err != nil && ctx.Err() == nil {
		o.log.Warn("letters were not all looked through for such as stand twice", "count", looked, "err", err)
	}
	return nil
}

// sameRefusal reports whether two letters are of the same refused job.
func sameRefusal(a, b nats.Header) bool {
	first, second := a.Get(ingest.HeaderMsgID), b.Get(ingest.HeaderMsgID)
	cut := strings.LastIndexByte(first, '-')
	return strings.HasPrefix(first, letterIDPrefix+refusedPrefix) && cut > 0 && strings.HasPrefix(second, first[:cut+1])
}

// lifeOf is the number of a refused job's letter.
func lifeOf(h nats.Header) int {
	id := h.Get(ingest.HeaderMsgID)
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// tens is how often a count has grown tenfold.
func tens(n int) (times int) {
	for ; n >= 10; n /= 10 {
		times++
	}
	return times
}
