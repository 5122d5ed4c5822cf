package bulksubmit

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// Bounds of a delivery.
const (
	window       = 1024             // jobs under way at a time
	windowBytes  = 16 << 20         // of their bodies
	waitingJobs  = 16_384           // jobs that wait for room in their buckets
	waitingBytes = 64 << 20         // of their bodies
	keptBuckets  = 65_536           // buckets remembered while no job of theirs waits
	answerAfter  = 15 * time.Second // then a job without an answer is sent again: the intake itself waits for the store
	againAfter   = time.Second      // for a job that could not be stored, or that no intake received
	patience     = time.Minute      // without a useful answer
	lastAnswers  = 5 * time.Second  // for the answers that are under way when a run is ended
	lastLine     = time.Second      // for the line that is being read then
)

// Options of a delivery. Conn, Lines, Told and Progress are required.
type Options struct {
	Conn    *nats.Conn
	Lines   *Lines
	Journal *Journal // nil: none is kept
	// Remembered is how long weir certainly remembers an id, 0 if unknown.
	Remembered time.Duration
	// Fit makes a job ready for its api. On an error nothing is sent, and the error is reported with the line.
	Fit func(job *ingest.Submission, hasBody bool) error
	// Room is what is known of a bucket.
	Room func(api, key string) Room
	// ReportFull reports the refusal of a full bucket instead of waiting.
	ReportFull bool
	// Report receives the outcome of every line, in any order. An error ends the delivery.
	Report func(Outcome) error
	// Progress is called now and then with how many lines have an outcome and how many jobs wait to be sent. An error
	// ends the delivery.
	Progress func(ended, waiting int) error
}

// Verdict is the outcome of a line.
type Verdict string

// The verdicts.
const (
	Taken   Verdict = "taken"
	Known   Verdict = "known"   // weir has the job already
	Before  Verdict = "before"  // an earlier run has its receipt: not sent
	Full    Verdict = "full"    // its bucket is full, or its call would be late
	Refused Verdict = "refused" // weir does not accept it
	Bad     Verdict = "bad"     // it was not sent
	Unsure  Verdict = "unsure"  // an earlier run may have submitted it, longer ago than weir certainly remembers: not sent
)

// Outcome is a line's outcome with its details.
type Outcome struct {
	Verdict Verdict
	Line    int
	API     string
	Key     string // empty if the line does not say it
	ID      string
	Answer  []byte    // weir's, of Taken, Known, Full and Refused
	Err     error     // of all others but Taken, Known and Before
	At      time.Time // of Before and Unsure: when it was sent
}

// Tally counts the lines that have ended.
type Tally struct {
	Ended    map[Verdict]int
	Stopped  bool
	Unsettle int // jobs without an answer when the delivery ended
}

// ErrSilent reports that no intake accepts jobs, or that no answer comes.
var ErrSilent = errors.New("no answer")

// sending is a job being sent.
type sending struct {
	line    int
	api     string
	key     string            // as the line has it
	job     ingest.Submission // as it is sent
	msg     *nats.Msg
	id      [16]byte
	bucket  *bucket
	first   time.Time // when it was first sent since the last refusal; zero: never
	tries   int
	sentAt  time.Time
	flies   bool
	unheard bool // an earlier try had no answer: a later refusal does not prove that the job was not accepted
}

// delivery is one run over a file. All of it belongs to one goroutine.
type delivery struct {
	Options
	tally    Tally
	inbox    string
	answers  chan *nats.Msg
	buckets  map[[2]string]*bucket
	due      byDue
	open     map[int]*sending // by line: under way or waiting
	flying   int
	bytes    int // of bodies under way
	waiting  int
	held     int       // bytes of bodies that wait
	trouble  time.Time // since when no useful answer has come; zero: there is no trouble
	notUntil time.Time // no intake listened: no sends before then
	useful   bool      // weir has answered
}

// Deliver submits the jobs of a file. It returns when every line has ended, or ctx ends. In the latter case it waits a
// little for outstanding answers, and for the line that is being read. It blocks. If a read of Lines does not return,
// it goes on in the background.
func Deliver(ctx context.Context, o Options) (Tally, error) {
	d := &delivery{
		Options: o, tally: Tally{Ended: map[Verdict]int{}}, inbox: o.Conn.NewRespInbox(), answers: make(chan *nats.Msg, 4*window),
		buckets: map[[2]string]*bucket{}, open: map[int]*sending{},
	}
	sub, err := o.Conn.ChanSubscribe(d.inbox+".*", d.answers)
	if err != nil {
		return d.tally, fmt.Errorf("listen for answers: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may have ended
	read := make(chan next, window)
	readCtx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Lines.feed(readCtx, read)
	}()
	err = d.run(ctx, read)
	stop()
	select {
	case <-ended:
	case <-time.After(lastLine): // a pipe without input: only the end of the process ends that read
	}
	d.tally.Unsettle = d.flying
	return d.tally, errors.Join(err, d.Journal.sync())
}

// next is a line, or the error in its place.
type next struct {
	line Line
	err  error
}

// feed reads lines ahead, one at a time.
func (l *Lines) feed(ctx context.Context, to chan<- next) {
	for {
		line, err := l.Next()
		select {
		case to <- next{line, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// run takes lines while there is room, sends due jobs, and processes answers.
func (d *delivery) run(ctx context.Context, read <-chan next) error {
	end := ctx.Done()
	var cut <-chan time.Time
	all := false // lines were read
	clock := time.NewTicker(100 * time.Millisecond)
	defer clock.Stop()
	for {
		now := time.Now()
		if end != nil {
			if err := d.send(now); err != nil {
				return err
			}
		}
		if d.flying == 0 && (end == nil || all && len(d.open) == 0) {
			return nil
		}
		lines := read
		if end == nil || all || d.waiting >= waitingJobs || d.held >= waitingBytes {
			lines = nil
		}
		timer := time.NewTimer(d.wait(now))
		var err error
		select {
		case n := <-lines:
			all, err = d.read(n)
		case msg := <-d.answers:
			err = d.hear(msg, time.Now())
		case <-timer.C:
		case <-clock.C:
			err = d.look(time.Now())
		case <-end:
			end, d.tally.Stopped, cut = nil, true, time.After(lastAnswers)
		case <-cut:
			return nil
		}
		timer.Stop()
		for err == nil && len(d.answers) > 0 { // all there are: what they make room for is noted in the journal at once
			err = d.hear(<-d.answers, time.Now())
		}
		for err == nil && !all && len(lines) > 0 && d.waiting < window {
			all, err = d.read(<-lines)
		}
		if err != nil {
			return err
		}
	}
}

// wait returns the time until something is due.
func (d *delivery) wait(now time.Time) time.Duration {
	if len(d.due) == 0 || d.full() {
		return time.Hour
	}
	at := d.due[0].due
	if at.Before(d.notUntil) {
		at = d.notUntil
	}
	return min(time.Hour, max(0, at.Sub(now)))
}

func (d *delivery) full() bool { return d.flying >= window || d.bytes >= windowBytes }

// read processes a line, and reports whether the file has ended.
func (d *delivery) read(n next) (end bool, err error) {
	switch {
	case errors.Is(n.err, io.EOF):
		return true, nil
	case n.err != nil:
		return false, fmt.Errorf("read the jobs: %w", n.err)
	}
	return false, d.take(n.line, time.Now())
}

// take processes a line: its job waits for its turn, or has ended.
func (d *delivery) take(line Line, now time.Time) error {
	s := &sending{line: line.Number, api: line.Job.API, key: line.Job.Key, job: line.Job}
	err := line.Err
	if err == nil && d.Fit != nil {
		err = d.Fit(&s.job, line.HasBody)
	}
	if err == nil {
		s.job.Retries = !d.ReportFull
		s.msg, err = s.job.Message()
	}
	if err == nil && int64(len(s.msg.Data))+(32<<10) > d.Conn.MaxPayload() {
		err = fmt.Errorf("the job is larger than the server's limit of %d bytes", d.Conn.MaxPayload())
	}
	if err != nil {
		return d.end(s, Outcome{Verdict: Bad, Err: err})
	}
	s.id = identity(&line.Job)
	if last, known := d.Journal.of(s.id); known && last.word != wordRefused {
		age := now.Sub(last.at)
		switch remembered := age >= 0 && age < d.Remembered/10*9; {
		case !remembered && last.word == wordTaken:
			return d.end(s, Outcome{Verdict: Before, At: last.at})
		case !remembered:
			return d.end(s, Outcome{Verdict: Unsure, At: last.at, Err: errors.New("an earlier run sent the job and ended before its answer came; it is too long ago for weir to know its id for certain")})
		}
		s.first, s.unheard = last.at, true
	}
	s.msg.Reply = d.inbox + "." + strconv.Itoa(s.line)
	s.bucket = d.bucketOf(s.api, s.key)
	d.open[s.line] = s
	d.await(s)
	return nil
}

// bucketOf returns what is known of a bucket. Jobs whose lines name no key share one bucket per api.
func (d *delivery) bucketOf(api, key string) *bucket {
	at := [2]string{api, key}
	b := d.buckets[at]
	if b != nil {
		return b
	}
	if len(d.buckets) >= keptBuckets {
		for k, other := range d.buckets {
			if other.idle() {
				delete(d.buckets, k)
			}
		}
	}
	b = &bucket{at: -1}
	if d.Room != nil && key != "" && !d.ReportFull {
		b.room = d.Room(api, key)
	}
	d.buckets[at] = b
	return b
}

// await makes a job wait for its turn.
func (d *delivery) await(s *sending) {
	s.bucket.waiting = append(s.bucket.waiting, s)
	d.waiting++
	d.held += len(s.job.Body)
	d.schedule(s.bucket, time.Now())
}

// schedule puts a bucket in its place among those with jobs to send.
func (d *delivery) schedule(b *bucket, now time.Time) {
	if len(b.waiting) == 0 {
		if b.at >= 0 {
			heap.Remove(&d.due, b.at)
		}
		return
	}
	b.due = b.next(now)
	if b.at >= 0 {
		heap.Fix(&d.due, b.at)
	} else {
		heap.Push(&d.due, b)
	}
}

// send sends every due job for which there is room. The journal records a job before it is sent.
func (d *delivery) send(now time.Time) error {
	if now.Before(d.notUntil) {
		return nil
	}
	var batch []*sending
	for len(d.due) > 0 && !d.due[0].due.After(now) && !d.full() {
		b := d.due[0]
		s := b.waiting[0]
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		d.waiting--
		d.held -= len(s.job.Body)
		if d.open[s.line] == s { // otherwise a late answer has ended it
			b.sent(now)
			d.flying++
			d.bytes += len(s.job.Body)
			s.sentAt, s.flies = now, true
			s.tries++
			batch = append(batch, s)
			if s.first.IsZero() {
				s.first = now
				if err := d.Journal.note(s.id, wordSent, now); err != nil {
					return err
				}
			}
		}
		d.schedule(b, now)
	}
	if len(batch) == 0 {
		return nil
	}
	if err := d.Journal.sync(); err != nil {
		return err
	}
	for _, s := range batch {
		if err := d.Conn.PublishMsg(s.msg); err != nil {
			return fmt.Errorf("line %d: %w", s.line, err)
		}
	}
	return nil
}
