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
	window       = 1024             // the most jobs under way at a time
	batchJobs    = 128              // the most jobs of one message: a part of window, so that several messages are under way
	windowBytes  = 16 << 20         // the most bytes of bodies under way
	waitingJobs  = 16_384           // the most jobs that wait to be sent
	waitingBytes = 64 << 20         // the most bytes of bodies that wait
	keptBuckets  = 65_536           // the most buckets that are remembered while they have no jobs
	answerAfter  = 15 * time.Second // the longest wait for an answer to a job; the intake itself waits for the store
	againAfter   = time.Second      // the wait before the next send if a job could not be stored, or no intake received it
	patience     = time.Minute      // the longest time without a useful answer
	lastAnswers  = 5 * time.Second  // the longest wait for answers under way when the run is ended
	lastLine     = time.Second      // the longest wait for the line that is being read then
)

// Options of a delivery. Conn, Lines, Report and Progress are required.
type Options struct {
	Conn    *nats.Conn
	Lines   *Lines
	Journal *Journal // nil: no journal
	// Remembered is the time for which weir certainly remembers an id. 0 means unknown: then no job that weir may have
	// accepted is sent again.
	Remembered time.Duration
	// Fit makes a job ready for its api. If it fails, the job is not sent, and the error is reported as the line's
	// outcome. Optional.
	Fit func(job *ingest.Submission, hasBody bool) error
	// Room returns what the configuration says about a bucket. Optional.
	Room func(api, key string) Room
	// ReportFull makes a full bucket's refusal the outcome of the line. Without ReportFull the delivery waits and sends
	// the job again.
	ReportFull bool
	// Report receives the outcome of each line, in any order. An error ends the delivery.
	Report func(Outcome) error
	// Progress is called about ten times a second. ended is the number of lines that have an outcome. waiting is the
	// number of jobs that wait to be sent. An error ends the delivery.
	Progress func(ended, waiting int) error
}

// Verdict is the outcome of a line.
type Verdict string

// The verdicts.
const (
	Taken   Verdict = "taken"
	Known   Verdict = "known"   // weir already had the job
	Before  Verdict = "before"  // not sent: the job got its receipt in an earlier run
	Full    Verdict = "full"    // the job's bucket is full, or its call would come too late
	Refused Verdict = "refused" // weir does not accept the job
	Bad     Verdict = "bad"     // not sent: the line is wrong
	Unsure  Verdict = "unsure"  // not sent, or not again: weir may have accepted the job before, too long ago to remember its id for certain
)

// Outcome is the verdict on a line, with details.
type Outcome struct {
	Verdict Verdict
	Line    int
	API     string
	Key     string // empty if the line has none
	ID      string
	Answer  []byte    // weir's answer, with Taken, Known, Full and Refused
	Err     error     // with all verdicts but Taken, Known and Before
	At      time.Time // when the job was sent, with Before and Unsure
}

// Tally counts the outcomes of lines.
type Tally struct {
	Ended    map[Verdict]int
	Stopped  bool
	Unsettle int // jobs without an answer when the delivery ended
}

// ErrSilent reports that no intake accepts jobs, or that no answer comes.
var ErrSilent = errors.New("no answer")

// sending is a job from the reading of its line until its outcome.
type sending struct {
	line    int
	api     string
	key     string            // the key that the line says
	job     ingest.Submission // the job in the form in which it is sent
	msg     *nats.Msg
	id      [16]byte
	bucket  *bucket
	first   time.Time // when the job was first sent since its last refusal; zero: not sent since
	tries   int
	sentAt  time.Time
	flies   bool
	flight  int  // the number of the batch in which the job was sent last
	unheard bool // an earlier try had no answer, so a later refusal does not prove that the job was not accepted
}

// delivery is one run over a file. Only one goroutine uses it.
type delivery struct {
	Options
	tally    Tally
	inbox    string
	answers  chan *nats.Msg
	buckets  map[[2]string]*bucket
	due      byDue
	open     map[int]*sending   // by line: jobs under way or waiting
	flights  map[int][]*sending // the jobs of each batch that has no answer yet, by its number
	flight   int                // the number of the last batch
	flying   int
	bytes    int // bytes of bodies under way
	waiting  int
	held     int       // bytes of the bodies that wait
	trouble  time.Time // since when no useful answer has come; zero: no trouble
	notUntil time.Time // no job is sent before this time, because no intake listened
	useful   bool      // weir has accepted or refused a job in this run
}

// Deliver submits the jobs of a file. It blocks until every line has an outcome, or ctx ends. When ctx has ended, it
// still waits for answers under way, lastAnswers at most, and for the line that is being read, lastLine at most. If
// that read does not return, it continues in the background.
func Deliver(ctx context.Context, o Options) (Tally, error) {
	d := &delivery{
		Options: o, tally: Tally{Ended: map[Verdict]int{}}, inbox: o.Conn.NewRespInbox(), answers: make(chan *nats.Msg, 4*window),
		buckets: map[[2]string]*bucket{}, open: map[int]*sending{}, flights: map[int][]*sending{},
	}
	sub, err := o.Conn.ChanSubscribe(d.inbox+".*", d.answers)
	if err != nil {
		return d.tally, fmt.Errorf("listen for answers: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // an error means that the connection has ended
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
	case <-time.After(lastLine): // if a pipe has no input, only the end of the process ends the read
	}
	d.tally.Unsettle = d.flying
	return d.tally, errors.Join(err, d.Journal.sync())
}

// next is a line, or the error that occurred while reading it.
type next struct {
	line Line
	err  error
}

// feed reads lines before run needs them, one at a time.
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

// run reads lines while there is room, sends due jobs, and processes answers.
func (d *delivery) run(ctx context.Context, read <-chan next) error {
	end := ctx.Done()
	var cut <-chan time.Time
	all := false // all lines were read
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
		// Process all answers first. They make room for further jobs, and one sync of the journal then covers all of these.
		for err == nil && len(d.answers) > 0 {
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

// wait returns the time until the first bucket is due, an hour at most.
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

// read processes a line. It reports whether the file has ended.
func (d *delivery) read(n next) (end bool, err error) {
	switch {
	case errors.Is(n.err, io.EOF):
		return true, nil
	case n.err != nil:
		return false, fmt.Errorf("read the jobs: %w", n.err)
	}
	return false, d.take(n.line, time.Now())
}

// take makes the job of a line wait until it is sent, or reports the line's outcome.
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
	if err == nil && max(len(s.msg.Data)+(32<<10), ingest.SizeInBatch(s.msg)+ingest.BatchEnvelope) > int(d.Conn.MaxPayload()) {
		err = fmt.Errorf("the job is larger than the server's limit of %d bytes", d.Conn.MaxPayload())
	}
	if err != nil {
		return d.end(s, Outcome{Verdict: Bad, Err: err})
	}
	s.id = identity(&line.Job)
	if last, known := d.Journal.of(s.id); known && last.word != wordRefused {
		age := now.Sub(last.at)
		switch remembered := d.remembers(age); {
		case !remembered && last.word == wordTaken:
			return d.end(s, Outcome{Verdict: Before, At: last.at})
		case !remembered:
			return d.end(s, Outcome{Verdict: Unsure, At: last.at, Err: errors.New("an earlier run sent the job and ended before its answer came; it is too long ago for weir to know its id for certain")})
		}
		s.first, s.unheard = last.at, true
	}
	s.bucket = d.bucketOf(s.api, s.key)
	d.open[s.line] = s
	d.await(s)
	return nil
}

// bucketOf returns the bucket of a key. All jobs of an api whose lines name no key share one bucket.
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

// await adds a job to the waiting jobs of its bucket.
func (d *delivery) await(s *sending) {
	s.bucket.waiting = append(s.bucket.waiting, s)
	d.waiting++
	d.held += len(s.job.Body)
	d.schedule(s.bucket, time.Now())
}

// schedule updates the bucket's place in the heap of due buckets.
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

// send sends all due jobs for which there is room. Before a job is sent, the journal has it on disk.
func (d *delivery) send(now time.Time) error {
	if now.Before(d.notUntil) {
		return nil
	}
	var jobs []*sending
	for len(d.due) > 0 && !d.due[0].due.After(now) && !d.full() {
		b := d.due[0]
		s := b.waiting[0]
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		d.waiting--
		d.held -= len(s.job.Body)
		switch {
		case d.open[s.line] != s: // a late answer has ended the job
		case d.mayBeForgotten(s, now): // it waited too long for room in its bucket
			if err := d.giveUp(s); err != nil {
				return err
			}
		default:
			b.sent(now)
			d.flying++
			d.bytes += len(s.job.Body)
			s.sentAt, s.flies = now, true
			s.tries++
			jobs = append(jobs, s)
			if s.first.IsZero() {
				s.first = now
				if err := d.Journal.note(s.id, wordSent, now); err != nil {
					return err
				}
			}
		}
		d.schedule(b, now)
	}
	if len(jobs) == 0 {
		return nil
	}
	if err := d.Journal.sync(); err != nil {
		return err
	}
	byAPI := map[string][]*sending{}
	for _, s := range jobs {
		byAPI[s.api] = append(byAPI[s.api], s)
	}
	for api, jobs := range byAPI {
		for len(jobs) > 0 {
			n, err := d.publish(api, jobs)
			if err != nil {
				return err
			}
			jobs = jobs[n:]
		}
	}
	return nil
}

// publish publishes one batch of an api: the first n of jobs, as many as fit into one message.
func (d *delivery) publish(api string, jobs []*sending) (n int, err error) {
	b, room := ingest.NewBatch(api), int(d.Conn.MaxPayload())-ingest.BatchEnvelope
	d.flight++
	for ; n < min(len(jobs), batchJobs); n++ {
		s := jobs[n]
		if room -= ingest.SizeInBatch(s.msg); room < 0 {
			break
		}
		if err := b.Add(s.msg); err != nil {
			return 0, fmt.Errorf("line %d: %w", s.line, err)
		}
		s.flight = d.flight
	}
	if n == 0 { // the connection has moved to a server with a lower limit
		return 0, fmt.Errorf("line %d: the job is larger than the server's limit of %d bytes: %w", jobs[0].line, d.Conn.MaxPayload(), nats.ErrMaxPayload)
	}
	d.flights[d.flight] = jobs[:n:n]
	msg := b.Message()
	msg.Reply = d.inbox + "." + strconv.Itoa(d.flight)
	if err := d.Conn.PublishMsg(msg); err != nil {
		return 0, fmt.Errorf("line %d: %w", jobs[0].line, err)
	}
	return n, nil
}
