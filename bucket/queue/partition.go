package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/ingest"
)

// maxIntake bounds the jobs of one partition that wait to be stored. Holdings bound those of all partitions. Beyond
// either bound the intake answers 503.
const maxIntake = 16384

// Partition is one stream of an api's queue: the jobs of the keys that hash to it.
type Partition struct {
	queue  *Queue
	number int
	name   string // of the stream
	nc     *nats.Conn
	// reconnects returns how often the connection was lost and came back.
	reconnects func() uint64
	stream     jetstream.Stream
	intake     *stream.Exchange
	sweeper    *sweeper
	watch      time.Duration // how often the reader is checked for a stall
	// removalWatch is how often the owner looks for messages that were deleted by hand.
	removalWatch time.Duration
	heartbeat    time.Duration // how often the server sends the reader a heartbeat

	wake   chan struct{} // has a value when a job may be waiting
	larger chan struct{} // has a value when a message may be larger than the reader allows
	// lookNow has a value when messages may have been deleted from the stream by hand.
	lookNow chan struct{}

	expected expectation // which messages the reader should receive

	jobs, keys atomic.Int64 // in the book, of unfinished jobs

	mu             sync.Mutex // guards what follows, and the sweeper's state
	book           *book
	born           time.Time          // when the stream that is read was created; zero: unknown
	fenceGone      uint64             // the epoch of this owner that was reported as gone
	fence          uint64             // the sequence of this owner's epoch, 0 before it took over
	waiting        []*pendingPut      // not yet sent to the stream
	pending        map[string]*idPuts // waiting or sent, by message id
	reading        bool               // a reader reads the stream into the book
	caughtUp       bool               // the book has every job that was there when the reading began
	bookGeneration int                // numbers the books
	finishedIDs    finishedIDs        // the ids of finished jobs that the stream may have forgotten
}

// pendingPut is a job on its way into the stream.
type pendingPut struct {
	job        *ingest.Job
	limits     bucket.KeyLimits
	msg        *nats.Msg
	size       int   // of msg, in bytes
	held       int64 // bytes of the holdings
	ticket     uint32
	generation int  // of the book that gave the ticket
	duplicate  bool // another put with this id is pending: the stream will call one of them a duplicate
	// earlyRefusal was decided before the stream is asked. The stream then only decides whether the job's id is known.
	earlyRefusal *ingest.Refusal
	answer       stream.Answer
	depth        int64 // jobs of the key, if its bucket is full
	done         func(ingest.Receipt, *ingest.Refusal)
}

// idPuts are the puts with the same message id that have a ticket.
type idPuts struct {
	puts int
	read bool // the reader got a message with this id and did not count it: the ticket of the next answered put does
}

func newPartition(q *Queue, nc *nats.Conn, source jetstream.Stream, number int) (*Partition, error) {
	intake, err := stream.NewExchange(nc, stream.DiskOf(q.js))
	if err != nil {
		return nil, err
	}
	p := &Partition{
		reconnects: func() uint64 { return nc.Stats().Reconnects },
		queue:      q, number: number, name: StreamName(q.api, number), nc: nc, stream: source, intake: intake,
		book: newBook(), pending: map[string]*idPuts{}, wake: make(chan struct{}, 1), larger: make(chan struct{}, 1), lookNow: make(chan struct{}, 1),
		watch: readWatch, removalWatch: removalWatch, heartbeat: readHeartbeat, expected: expectation{news: make(chan struct{}, 1)},
	}
	p.sweeper, err = newSweeper(p)
	return p, err
}

// Name returns the name of the partition's stream.
func (p *Partition) Name() string { return p.name }

// Number returns the partition's place in its queue.
func (p *Partition) Number() int { return p.number }

// put stores a job in the bucket or refuses it, and calls done once with the answer. It judges the forecast now, and
// the capacity when the stream answers.
func (p *Partition) put(j *ingest.Job, limits bucket.KeyLimits, earlyRefusal *ingest.Refusal, done func(ingest.Receipt, *ingest.Refusal)) {
	p.mu.Lock()
	if len(p.waiting) >= maxIntake {
		p.mu.Unlock()
		done(ingest.Receipt{}, &ingest.Refusal{
			Code: ingest.Unavailable, Description: fmt.Sprintf("too many jobs wait to be stored in %s: try again", p.name),
		})
		return
	}
	if fault.Planted(fault.NoDedupe) {
		j.DedupeID = nuid.Next()
	}
	id := ingest.StoredID(j.Key, j.DedupeID)
	if first, known := p.finishedIDs.find(id); known && p.queue.dedupe.Judge(first.accepted, bucket.MicrosOf(time.Now())) == Same {
		p.mu.Unlock()
		done(p.placed(ingest.Receipt{
			Stream: p.name, Seq: first.seq, Job: j.ID, Key: j.Key, Duplicate: true,
		}, p.queue.place(j.Key, first.seq, j.Priority), limits), nil)
		return
	}
	position := p.book.depth(j.Key) + 1
	held := heldBy(j)
	if err := p.queue.holdings.enter(held, position == 1); err != nil {
		p.mu.Unlock()
		done(ingest.Receipt{}, &ingest.Refusal{Code: ingest.Unavailable, Description: fmt.Sprintf(
			"weir holds as much in memory as it may, job %s of api %s was not kept (%v): try again", j.ID, j.API, err)})
		return
	}
	p.mu.Unlock()

	if earlyRefusal == nil {
		earlyRefusal = p.late(j, limits, position) // late calls the schedule, which may call back: do not hold the lock
	}

	p.mu.Lock()
	e := &pendingPut{job: j, limits: limits, done: done, earlyRefusal: earlyRefusal, held: held}
	e.msg = j.Message(queueSubject(p.queue.api, p.number, kindJob, ingest.Token(j.Key)))
	if earlyRefusal == nil {
		e.ticket, e.generation = p.book.enter(j.Key), p.bookGeneration
		if e.duplicate = p.pending[id] != nil; !e.duplicate {
			p.pending[id] = &idPuts{}
		}
		p.pending[id].puts++
		p.tallyLocked()
	}
	p.waiting = append(p.waiting, e)
	e.size = e.msg.Size()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// heldBy returns the memory in bytes that a job takes until its stream has answered: body, headers, and the message
// made of both.
func heldBy(j *ingest.Job) int64 {
	const rest = 2 << 10 // the job, its message, two maps
	held := len(j.Body) + rest
	for name, values := range j.Header {
		held += len(name)
		for _, v := range values {
			held += len(v)
		}
	}
	return int64(held)
}

// late refuses a job whose call would start later than the key allows. It also refuses a job whose call cannot start
// before the job's deadline, whatever the calls before it turn out to take.
func (p *Partition) late(j *ingest.Job, limits bucket.KeyLimits, position int) *ingest.Refusal {
	if limits.MaxWait == 0 && j.Deadline.IsZero() {
		return nil
	}
	place := p.queue.placeOf(j, position)
	at := p.queue.eta(limits, place, position-1)
	if at == 0 {
		return nil // an operator has paused the key for an unknown time
	}
	eta := at.Time()
	wait := time.Until(eta)
	if !j.NotBefore.IsZero() {
		wait = min(wait, eta.Sub(j.NotBefore)) // a job does not wait before its own NotBefore
	}
	soonest := eta
	if !j.Deadline.IsZero() && !eta.Before(j.Deadline) {
		soonest = p.queue.soonest(limits, place, position-1).Time()
	}
	r := &ingest.Refusal{Code: ingest.Throttled, Depth: int64(position - 1), Capacity: limits.Capacity}
	switch {
	case limits.MaxWait > 0 && wait > limits.MaxWait:
		r.RetryAfter = p.queue.comeBack(limits, j, wait-limits.MaxWait)
		r.Description = fmt.Sprintf("would wait too long: %s/%s could call it in %s, max_wait is %s", p.queue.api, j.Key,
			wait.Round(time.Millisecond), limits.MaxWait)
	case !j.Deadline.IsZero() && !soonest.Before(j.Deadline):
		// If the job comes again after this time, with as much time until its deadline as now, it is not too late.
		r.RetryAfter = p.queue.comeBack(limits, j, soonest.Sub(j.Deadline))
		r.Description = fmt.Sprintf("too late: %s/%s could call it at %s, after its deadline", p.queue.api, j.Key,
			soonest.UTC().Format(time.RFC3339Nano))
	default:
		return nil
	}
	return r.WithRetry()
}

// tallyLocked updates the counts that forecasts read from the book.
func (p *Partition) tallyLocked() {
	p.jobs.Store(int64(max(0, p.book.jobs-len(p.sweeper.finished))))
	keys := int64(len(p.book.keys))
	p.queue.holdings.keys.Add(keys - p.keys.Swap(keys))
}

func (p *Partition) depth(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.book.depth(key)
}

func (p *Partition) runIntake(ctx context.Context) error {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			p.abandon()
			return p.intake.Close()
		}
		for ctx.Err() == nil {
			group := p.takeGroup()
			if len(group) == 0 {
				break
			}
			p.storeGroup(ctx, group)
		}
	}
}

// abandon refuses the waiting jobs when the intake ends.
func (p *Partition) abandon() {
	for group := p.takeGroup(); len(group) > 0; group = p.takeGroup() {
		for _, e := range group {
			e.answer.Err = stream.ErrStopping
			p.answer(e)
		}
	}
}

func (p *Partition) takeGroup() []*pendingPut {
	p.mu.Lock()
	defer p.mu.Unlock()
	return stream.TakeGroup(&p.waiting, func(e **pendingPut) int { return (*e).size })
}

// storeGroup asks the stream to store a group, and answers its producers in the order the jobs came.
func (p *Partition) storeGroup(ctx context.Context, group []*pendingPut) {
	together, alone, counted := p.sort(group)
	p.commit(ctx, together, p.intake.Commit)
	p.commit(ctx, alone, p.intake.Singly)
	p.putCounted(ctx, counted)
	for _, e := range group {
		p.answer(e)
	}
}

func (p *Partition) commit(ctx context.Context, some []*pendingPut, how func(context.Context, []*nats.Msg) []stream.Answer) {
	if len(some) == 0 {
		return
	}
	msgs := make([]*nats.Msg, len(some))
	for i, e := range some {
		msgs[i] = e.msg
	}
	for i, answer := range how(ctx, msgs) {
		some[i].answer = answer
	}
}

// sort divides a group by how its jobs are put. Jobs that the stream will accept go together. Jobs that it will
// probably refuse go alone, since one refusal would refuse the whole group; the stream still decides. The jobs of a key
// whose capacity is below the stream's ceiling are counted exactly: once the key is half full, or always if the book
// does not know what other processes have stored.
func (p *Partition) sort(group []*pendingPut) (together, alone, counted []*pendingPut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range group {
		place := int64(p.book.position(e.job.Key, e.ticket))
		switch {
		case e.earlyRefusal != nil:
			e.msg.Header[stream.HeaderRollup] = []string{impossibleRollup}
			alone = append(alone, e)
		case p.queue.above(e.limits.Capacity) && (p.queue.others || !p.caughtUp || place > e.limits.Capacity/2):
			counted = append(counted, e)
		case e.duplicate, place > e.limits.Capacity:
			alone = append(alone, e)
		default:
			together = append(together, e)
		}
	}
	return together, alone, counted
}

// impossibleRollup makes a stream report whether it knows a message's id, without storing the message: the server looks
// for the id before it refuses a rollup of an unknown kind. An expected sequence does not work, since a stream without
// replicas checks it before the id. An expected last id does not work either: a stream with replicas compares it only
// when every replica has the message, and all replicas then take the mismatch for a failed write and store nothing more
// until they are restarted (nats-server 2.15.2).
const impossibleRollup = "-"

// answer sends one producer its receipt or refusal, by the stream's answer.
func (p *Partition) answer(e *pendingPut) {
	p.mu.Lock()
	position := p.book.position(e.job.Key, e.ticket)
	p.settleLocked(e)
	p.mu.Unlock()
	p.queue.holdings.intake.give(e.held)

	if e.answer.Err != nil {
		e.done(ingest.Receipt{}, p.refusal(e))
		return
	}
	fault.Pass(fault.JobStored)
	receipt := ingest.Receipt{
		Stream: p.name, Seq: e.answer.Seq, Job: e.job.ID, Key: e.job.Key, Duplicate: e.answer.Duplicate,
	}
	var place Place
	if receipt.Duplicate {
		place = p.queue.place(e.job.Key, receipt.Seq, e.job.Priority)
		p.mu.Lock()
		if place.Position == 0 && p.reading && receipt.Seq > p.sweeper.read {
			place.Position, place.NotBefore = p.book.depth(e.job.Key), notBefore(e.job) // the owner has not read it yet
		}
		p.mu.Unlock()
	} else {
		place = p.queue.stored(e.job, receipt.Seq, position)
	}
	e.done(p.placed(receipt, place, e.limits), nil)
}

// placed adds to a receipt the job's position, and the expected time of its call if the call is still to come.
func (p *Partition) placed(r ingest.Receipt, place Place, limits bucket.KeyLimits) ingest.Receipt {
	if r.Position = place.Position; r.Position > 0 {
		if at := p.queue.eta(limits, place, p.depth(r.Key)); at != 0 {
			r.ETA = at.Time()
		}
	}
	return r
}

// settleLocked updates the book with a put's answer, so that it counts each stored job once.
func (p *Partition) settleLocked(e *pendingPut) {
	if e.earlyRefusal != nil || e.generation != p.bookGeneration {
		return // it has no ticket, or a ticket of a closed book: then the reader counts the job
	}
	id := e.msg.Header.Get(ingest.HeaderMsgID)
	same := p.pending[id]
	kept := e.answer.Err == nil && !e.answer.Duplicate
	if at := notBefore(e.job); kept && p.reading && at != 0 {
		p.sweeper.appointments.store(e.job.Key, Appointment{e.answer.Seq, at})
	}
	switch {
	case kept && p.reading && e.answer.Seq > p.sweeper.read:
		p.sweeper.own[e.answer.Seq] = e.job.Key // its ticket counts it
		p.expected.raise(e.answer.Seq)
	case same.read:
		same.read = false
	default:
		p.book.leave(e.job.Key)
		p.tallyLocked()
	}
	if same.puts--; same.puts == 0 {
		delete(p.pending, id)
	}
}

// refusal turns a stream's error into the producer's refusal.
func (p *Partition) refusal(e *pendingPut) *ingest.Refusal {
	switch {
	case e.earlyRefusal != nil && (errors.Is(e.answer.Err, stream.ErrNotKnown) || isFull(e.answer.Err)):
		return e.earlyRefusal
	case isFull(e.answer.Err):
		depth := max(e.depth, e.limits.Capacity)
		r := ingest.Refusal{
			Code: ingest.Throttled, Depth: depth, Capacity: e.limits.Capacity,
			Description: fmt.Sprintf("bucket full: %s/%s holds %d of %d", p.queue.api, e.job.Key, depth, e.limits.Capacity),
			RetryAfter:  p.queue.comeBack(e.limits, e.job, p.queue.nextFree(e.limits, e.job.Key)),
		}
		return r.WithRetry()
	case errors.Is(e.answer.Err, stream.ErrUnanswered):
		return &ingest.Refusal{Code: ingest.Unsure, Description: fmt.Sprintf("it is unknown whether the job was stored: %v", e.answer.Err)}
	}
	why := e.answer.Err
	if errors.Is(why, stream.ErrUnsent) {
		why = stream.ErrUnsent // the error behind it may name the server's address
	}
	return &ingest.Refusal{
		Code:        ingest.Unavailable,
		Description: fmt.Sprintf("the job could not be stored in %s, nothing was kept: %v", p.name, why),
	}
}
