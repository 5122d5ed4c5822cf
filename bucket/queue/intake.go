package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/ingest"
)

// maxIntake bounds the jobs of one partition that wait to be stored. Holdings bound those of all partitions. Beyond
// either bound the intake answers 503.
const maxIntake = 16384

// intake stores the jobs that come for one partition, in groups. Its goroutine stores one group at a time; the jobs
// that come meanwhile wait for the next.
type intake struct {
	queue       *Queue
	source      *source
	contents    *contents
	finishedIDs *finishedIDs
	x           *stream.Exchange
	wake        chan struct{} // has a value when a job may be waiting

	mu      sync.Mutex    // guards what follows; taken before the lock of the contents
	waiting []*pendingPut // not yet sent to the stream
}

// pendingPut is a job on its way into the stream.
type pendingPut struct {
	job    *ingest.Job
	limits bucket.KeyLimits
	msg    *nats.Msg
	size   int   // of msg, in bytes
	held   int64 // bytes of the holdings
	ticket ticket
	// earlyRefusal was decided before the stream is asked. The stream then only decides whether the job's id is known.
	earlyRefusal *ingest.Refusal
	answer       stream.Answer
	depth        int64 // jobs of the key, if its bucket is full
	done         func(ingest.Receipt, *ingest.Refusal)
}

// put stores a job in the bucket or refuses it, and calls done once with the answer. It judges the forecast now, and
// the capacity when the stream answers.
func (in *intake) put(
	j *ingest.Job, limits bucket.KeyLimits, earlyRefusal *ingest.Refusal, done func(ingest.Receipt, *ingest.Refusal),
) {
	if in.full() {
		done(ingest.Receipt{}, &ingest.Refusal{
			Code:        ingest.Unavailable,
			Description: fmt.Sprintf("too many jobs wait to be stored in %s: try again", in.source.name),
		})
		return
	}
	if fault.Planted(fault.NoDedupe) {
		j.DedupeID = nuid.Next()
	}
	id := ingest.StoredID(j.Key, j.DedupeID)
	now := bucket.MicrosOf(time.Now())
	if first, known := in.finishedIDs.find(id); known && in.queue.dedupe.Judge(first.accepted, now) == Same {
		done(in.placed(ingest.Receipt{
			Stream: in.source.name, Seq: first.seq, Job: j.ID, Key: j.Key, Duplicate: true,
		}, in.queue.place(j.Key, first.seq, j.Priority), limits), nil)
		return
	}
	position := in.contents.depth(j.Key) + 1
	held := heldBy(j)
	if err := in.queue.holdings.enter(held, position == 1); err != nil {
		done(ingest.Receipt{}, &ingest.Refusal{Code: ingest.Unavailable, Description: fmt.Sprintf(
			"weir holds as much in memory as it may, job %s of api %s was not kept (%v): try again", j.ID, j.API, err)})
		return
	}
	if earlyRefusal == nil {
		earlyRefusal = in.late(j, limits, position) // late calls the schedule, which may call back: do not hold a lock
	}
	e := &pendingPut{job: j, limits: limits, done: done, earlyRefusal: earlyRefusal, held: held}
	e.msg = j.Message(in.source.subject(kindJob, ingest.Token(j.Key)))
	in.add(e, id)
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// full reports whether no more jobs may wait to be stored.
func (in *intake) full() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting) >= maxIntake
}

// add lets a job wait to be stored. The book counts it in the order in which jobs wait.
func (in *intake) add(e *pendingPut, id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if e.earlyRefusal == nil {
		e.ticket = in.contents.issue(e.job.Key, id)
	}
	in.waiting = append(in.waiting, e)
	e.size = e.msg.Size()
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
func (in *intake) late(j *ingest.Job, limits bucket.KeyLimits, position int) *ingest.Refusal {
	if limits.MaxWait == 0 && j.Deadline.IsZero() {
		return nil
	}
	place := in.queue.placeOf(j, position)
	at := in.queue.eta(limits, place, position-1)
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
		soonest = in.queue.soonest(limits, place, position-1).Time()
	}
	r := &ingest.Refusal{Code: ingest.Throttled, Depth: int64(position - 1), Capacity: limits.Capacity}
	switch {
	case limits.MaxWait > 0 && wait > limits.MaxWait:
		r.RetryAfter = in.queue.comeBack(limits, j, wait-limits.MaxWait)
		r.Description = fmt.Sprintf("would wait too long: %s/%s could call it in %s, max_wait is %s", in.source.api, j.Key,
			wait.Round(time.Millisecond), limits.MaxWait)
	case !j.Deadline.IsZero() && !soonest.Before(j.Deadline):
		// If the job comes again after this time, with as much time until its deadline as now, it is not too late.
		r.RetryAfter = in.queue.comeBack(limits, j, soonest.Sub(j.Deadline))
		r.Description = fmt.Sprintf("too late: %s/%s could call it at %s, after its deadline", in.source.api, j.Key,
			soonest.UTC().Format(time.RFC3339Nano))
	default:
		return nil
	}
	return r.WithRetry()
}

// run stores jobs until ctx ends, and then refuses those that still wait.
func (in *intake) run(ctx context.Context) error {
	for {
		select {
		case <-in.wake:
		case <-ctx.Done():
			in.abandon()
			return in.x.Close()
		}
		for ctx.Err() == nil {
			group := in.takeGroup()
			if len(group) == 0 {
				break
			}
			in.storeGroup(ctx, group)
		}
	}
}

// abandon refuses the waiting jobs when the intake ends.
func (in *intake) abandon() {
	for group := in.takeGroup(); len(group) > 0; group = in.takeGroup() {
		for _, e := range group {
			e.answer.Err = stream.ErrStopping
			in.answer(e)
		}
	}
}

func (in *intake) takeGroup() []*pendingPut {
	in.mu.Lock()
	defer in.mu.Unlock()
	return stream.TakeGroup(&in.waiting, func(e **pendingPut) int { return (*e).size })
}

// storeGroup asks the stream to store a group, and answers its producers in the order the jobs came.
func (in *intake) storeGroup(ctx context.Context, group []*pendingPut) {
	together, alone, counted := in.sort(group)
	in.commit(ctx, together, in.x.Commit)
	in.commit(ctx, alone, in.x.Singly)
	in.putCounted(ctx, counted)
	for _, e := range group {
		in.answer(e)
	}
}

func (in *intake) commit(
	ctx context.Context, some []*pendingPut, how func(context.Context, []*nats.Msg) []stream.Answer,
) {
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
// whose capacity is below the stream's ceiling are counted exactly: once the key is half full, or always while the book
// may lack jobs of the key.
func (in *intake) sort(group []*pendingPut) (together, alone, counted []*pendingPut) {
	positions, caughtUp := in.contents.places(group)
	for i, e := range group {
		place := int64(positions[i])
		switch {
		case e.earlyRefusal != nil:
			e.msg.Header[stream.HeaderRollup] = []string{impossibleRollup}
			alone = append(alone, e)
		case in.queue.above(e.limits.Capacity) && (in.queue.others || !caughtUp || place > e.limits.Capacity/2):
			counted = append(counted, e)
		case e.ticket.duplicate, place > e.limits.Capacity:
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
func (in *intake) answer(e *pendingPut) {
	position := in.contents.settle(e.job, e.ticket, e.answer)
	in.queue.holdings.intake.give(e.held)

	if e.answer.Err != nil {
		e.done(ingest.Receipt{}, in.refusal(e))
		return
	}
	fault.Pass(fault.JobStored)
	receipt := ingest.Receipt{
		Stream: in.source.name, Seq: e.answer.Seq, Job: e.job.ID, Key: e.job.Key, Duplicate: e.answer.Duplicate,
	}
	var place Place
	if receipt.Duplicate {
		place = in.queue.place(e.job.Key, receipt.Seq, e.job.Priority)
		if place.Position == 0 {
			if depth, unread := in.contents.depthUnread(receipt.Seq, e.job.Key); unread {
				place.Position, place.NotBefore = depth, notBefore(e.job) // the owner has not read it yet
			}
		}
	} else {
		place = in.queue.stored(e.job, receipt.Seq, position)
	}
	e.done(in.placed(receipt, place, e.limits), nil)
}

// placed adds to a receipt the job's position, and the expected time of its call if the call is still to come.
func (in *intake) placed(r ingest.Receipt, place Place, limits bucket.KeyLimits) ingest.Receipt {
	if r.Position = place.Position; r.Position > 0 {
		if at := in.queue.eta(limits, place, in.contents.depth(r.Key)); at != 0 {
			r.ETA = at.Time()
		}
	}
	return r
}

// refusal turns a stream's error into the producer's refusal.
func (in *intake) refusal(e *pendingPut) *ingest.Refusal {
	switch {
	case e.earlyRefusal != nil && (errors.Is(e.answer.Err, stream.ErrNotKnown) || isFull(e.answer.Err)):
		return e.earlyRefusal
	case isFull(e.answer.Err):
		depth := max(e.depth, e.limits.Capacity)
		r := ingest.Refusal{
			Code: ingest.Throttled, Depth: depth, Capacity: e.limits.Capacity,
			Description: fmt.Sprintf("bucket full: %s/%s holds %d of %d", in.source.api, e.job.Key, depth, e.limits.Capacity),
			RetryAfter:  in.queue.comeBack(e.limits, e.job, in.queue.nextFree(e.limits, e.job.Key)),
		}
		return r.WithRetry()
	case errors.Is(e.answer.Err, stream.ErrUnanswered):
		return &ingest.Refusal{
			Code: ingest.Unsure, Description: fmt.Sprintf("it is unknown whether the job was stored: %v", e.answer.Err),
		}
	}
	why := e.answer.Err
	if errors.Is(why, stream.ErrUnsent) {
		why = stream.ErrUnsent // the error behind it may name the server's address
	}
	return &ingest.Refusal{
		Code:        ingest.Unavailable,
		Description: fmt.Sprintf("the job could not be stored in %s, nothing was kept: %v", in.source.name, why),
	}
}
