package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Forecaster answers questions that only the owner of a key's bucket can answer. Without a forecaster, max_wait and
// deadlines are judged by the key's rate alone, and receipts of known ids have no position.
type Forecaster interface {
	// ETA returns when the call of the job at a place should start. It returns 0 if that is unknown, because an
	// operator has paused the call.
	ETA(Place) bucket.Micros
	// Soonest returns the earliest time at which the call of the job at a place may start, if all calls that are not
	// settled yet turn out to have taken nothing.
	Soonest(Place) bucket.Micros
	// NextFree returns when a job of the key should end, so that its full bucket has room again; 0 if that is unknown.
	// unread are jobs of the key that must not be called before a time, and that the owner may not have read yet.
	NextFree(key string, unread []Appointment) bucket.Micros
	// Position returns the rank of the unfinished job with this sequence among the key's jobs, from 1; 0 if the job is
	// finished. notBefore is the time before which it must not be called, 0 for none.
	Position(key string, seq uint64) (position int, notBefore bucket.Micros)
	// Behind returns how many of upTo unfinished jobs of the key will be called after a new job. The new job has the
	// priority p and must not be called before at; 0 for at once.
	Behind(key string, upTo int, at bucket.Micros, p ingest.Priority) int
}

// Place is a job's position among the jobs of its key; the first is 1.
type Place struct {
	Key      string
	Priority ingest.Priority
	Position int
	// Others is the number of jobs of other keys, and Keys the number of keys with jobs, as far as the intake knows.
	// Jobs on their way to the streams count too. Both may be too low.
	Others, Keys int
	NotBefore    bucket.Micros // the time before which the job must not be called; 0: at once
}

// Options configure a Queue. All but Dedupe, Others and Holdings are required.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Settings  Settings
	Rules     bucket.Rules
	// Dedupe holds how long ids are known. All queues of a process share one. Nil: always the value of Settings.
	Dedupe *Dedupe
	// Others says that other processes also put jobs into the queue. The queue then counts every job of a key with a
	// smaller capacity than its stream has, since the book learns late of the other processes' jobs.
	Others bool
	// Holdings bound the memory of this queue and of all other queues with the same Holdings. Nil: holdings of its own,
	// for a small process.
	Holdings *Holdings
}

// Queue is the bounded queue behind every key of one api: one stream per partition, one subject per key. A message in
// a stream is an unfinished job. It is safe for concurrent use.
type Queue struct {
	api        string
	js         jetstream.JetStream
	partitions []*Partition
	others     bool
	log        *slog.Logger // nil: nothing is logged
	dedupe     *Dedupe
	holdings   *Holdings
	largest    atomic.Int64 // bytes of the largest message that the streams allow
	ceiling    ceiling
	rules      atomic.Pointer[intakeRules]
	settings   atomic.Pointer[Settings] // the settings that the streams were last given
	forecaster atomic.Pointer[Forecaster]
	comebacks  comebacks
}

// intakeRules are the rules, and the state of their admission limits. An intakeRules is never changed, only replaced.
type intakeRules struct {
	rules     bucket.Rules
	admitters []*bucket.Admitter
}

var _ ingest.Queue = (*Queue)(nil)

// OpenQueue creates the api's streams if they do not exist, and opens them. Run makes the queue work.
func OpenQueue(ctx context.Context, o Options) (*Queue, error) {
	asked := time.Now()
	partitions, highest, err := ensureQueue(ctx, o.JetStream, o.Settings)
	if err != nil {
		return nil, err
	}
	q := &Queue{api: o.Settings.API, js: o.JetStream, others: o.Others, log: o.Settings.Log, dedupe: o.Dedupe}
	if q.dedupe == nil {
		q.dedupe = NewDedupe(o.Settings.Dedupe)
	}
	if q.holdings = o.Holdings; q.holdings == nil {
		q.holdings = NewHoldings(defaultMemory)
	}
	q.settings.Store(&o.Settings)
	q.ceiling.every = ceilingLook
	q.ceiling.raise(highest, asked)
	if err := q.SetRules(o.Rules); err != nil {
		return nil, err
	}
	for p := range partitions {
		source, err := stream.Open(ctx, o.JetStream, StreamName(q.api, p))
		if err != nil {
			return nil, err
		}
		q.enlarge(int64(source.CachedInfo().Config.MaxMsgSize))
		partition, err := newPartition(q, o.Conn, source, p)
		if err != nil {
			return nil, err
		}
		q.partitions = append(q.partitions, partition)
	}
	return q, nil
}

// Run stores and deletes until ctx ends, and returns when every part has ended.
func (q *Queue) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if q.others {
		group.Go(func() error { return q.followCeiling(ctx) })
	}
	for _, p := range q.partitions {
		group.Go(func() error { return p.intake.run(ctx) })
		group.Go(func() error { return p.sweeper.run(ctx) })
	}
	return group.Wait()
}

// SetRules changes which jobs the queue accepts. It does not affect jobs in the queue. An admission limit that does not
// change keeps its counts. On an error nothing changes. If a capacity rises above every former capacity, the caller
// must call Raise first.
func (q *Queue) SetRules(r bucket.Rules) error {
	next := &intakeRules{rules: r}
	var kept []*bucket.Admitter
	if old := q.rules.Load(); old != nil {
		kept = slices.Clone(old.admitters)
	}
	for _, a := range r.Admit {
		if i := slices.IndexFunc(kept, func(x *bucket.Admitter) bool { return x.Admission == a }); i >= 0 {
			next.admitters = append(next.admitters, kept[i])
			kept = slices.Delete(kept, i, i+1)
			continue
		}
		x, err := bucket.NewAdmitter(a)
		if err != nil {
			return err
		}
		next.admitters = append(next.admitters, x)
	}
	q.rules.Store(next)
	return nil
}

// Raise gives the api's streams new settings. It never lowers a stream's capacity or bound of a body, because the
// stream would delete jobs then. The intake enforces lower bounds instead.
func (q *Queue) Raise(ctx context.Context, s Settings) error {
	// Keys below this ceiling are counted until every stream accepts that many jobs, and always if one of the streams
	// fails.
	asked := time.Now()
	q.ceiling.raise(s.Capacity, bucket.Micros(q.ceiling.looked.Load()).Time())
	_, highest, err := ensureQueue(ctx, q.js, s)
	if err != nil {
		return err
	}
	q.settings.Store(&s)
	q.ceiling.raise(highest, asked)
	q.enlarge(s.MaxBody + maxHeaderBytes)
	return nil
}

// enlarge notes how large a message may be, in bytes. A reader that allows only smaller messages would never receive a
// larger one, so enlarge makes all readers begin anew.
func (q *Queue) enlarge(size int64) {
	for {
		known := q.largest.Load()
		if size <= known {
			return
		}
		if q.largest.CompareAndSwap(known, size) {
			break
		}
	}
	for _, p := range q.partitions {
		select {
		case p.larger <- struct{}{}:
		default: // the reader has not taken the last notice yet
		}
	}
}

// SetForecaster sets the forecaster that the queue asks about times and positions.
func (q *Queue) SetForecaster(o Forecaster) { q.forecaster.Store(&o) }

// Holdings returns the bounds of the queue's memory.
func (q *Queue) Holdings() *Holdings { return q.holdings }

// Found returns how many jobs the queue held when it was opened, and of how many keys. A marker counts as a job and as
// a key.
func (q *Queue) Found() (keys, jobs int64) {
	for _, p := range q.partitions {
		state := p.source.stream.CachedInfo().State
		keys, jobs = keys+int64(state.NumSubjects), jobs+int64(state.Msgs)
	}
	return keys, jobs
}

// Partitions returns the queue's partitions, by number.
func (q *Queue) Partitions() []*Partition { return q.partitions }

// Partition returns the partition that holds a key's jobs.
func (q *Queue) Partition(key string) *Partition {
	return q.partitions[PartitionOf(key, len(q.partitions))]
}

// Stream implements ingest.Queue.
func (q *Queue) Stream(key string) string { return q.Partition(key).Name() }

// Put implements ingest.Queue: it stores the job unless its bucket is full, or its call would come too late.
func (q *Queue) Put(j *ingest.Job, done func(ingest.Receipt, *ingest.Refusal)) {
	h := q.rules.Load()
	limits := h.rules.For(j.Key)
	admitted, refusal := q.admit(j, h.admitters, limits)
	if admitted != nil {
		done = admitted.answered(done)
	}
	q.Partition(j.Key).intake.put(j, limits, refusal, done)
}

// admit asks the admission limits.
func (q *Queue) admit(j *ingest.Job, admitters []*bucket.Admitter, limits bucket.KeyLimits) (*admissions, *ingest.Refusal) {
	admitted, no := admitAll(j, admitters)
	if no == nil {
		return admitted, nil
	}
	r := ingest.Refusal{
		Code: ingest.Throttled, RetryAfter: no.Retry, Depth: int64(q.Partition(j.Key).contents.depth(j.Key)), Capacity: limits.Capacity,
		Description: fmt.Sprintf("too many jobs come in: %s/%s is over its admission limit", q.api, j.Key),
	}
	return nil, r.WithRetry()
}

// eta returns when the call of a job at a place of its key should start. own is the number of jobs of the key.
func (q *Queue) eta(limits bucket.KeyLimits, place Place, own int) bucket.Micros {
	return q.expect(limits, place, own, Forecaster.ETA)
}

// soonest returns the earliest time at which the call of a job at a place of its key may start: see Forecaster.Soonest.
func (q *Queue) soonest(limits bucket.KeyLimits, place Place, own int) bucket.Micros {
	return q.expect(limits, place, own, Forecaster.Soonest)
}

func (q *Queue) expect(limits bucket.KeyLimits, place Place, own int, ask func(Forecaster, Place) bucket.Micros) bucket.Micros {
	if o := q.forecaster.Load(); o != nil {
		jobs, keys := q.load()
		place.Others, place.Keys = max(0, jobs-own), keys
		return ask(*o, place)
	}
	at := bucket.Forecast(limits, q.rules.Load().rules.Interval(limits.Rate), 0, bucket.MicrosOf(time.Now()), place.Position)
	return max(at, place.NotBefore)
}

// placeOf returns the place of a job whose key has upTo unfinished jobs, this one included. It does not count jobs that
// will be called later than this one.
func (q *Queue) placeOf(j *ingest.Job, upTo int) Place {
	p := Place{Key: j.Key, Priority: j.Priority, Position: upTo, NotBefore: notBefore(j)}
	if o := q.forecaster.Load(); o != nil && upTo > 1 {
		p.Position = max(1, upTo-(*o).Behind(j.Key, upTo-1, p.NotBefore, j.Priority))
	}
	return p
}

// stored returns the place of a job that was just stored. If the job must not be called yet, or has not the normal
// priority, only the owner knows which jobs of the key are called later. So if the owner has read the job by now,
// stored returns the owner's answer.
func (q *Queue) stored(j *ingest.Job, seq uint64, upTo int) Place {
	if notBefore(j) != 0 || j.Priority != ingest.Normal {
		if p := q.place(j.Key, seq, j.Priority); p.Position > 0 {
			return p
		}
	}
	return q.placeOf(j, upTo)
}

// notBefore returns the time before which a job must not be called, 0 for none.
func notBefore(j *ingest.Job) bucket.Micros {
	if j.NotBefore.IsZero() {
		return 0
	}
	return bucket.MicrosOf(j.NotBefore)
}

// load returns how many jobs are in the queue or on their way into it, and of how many keys, as far as this process
// knows.
func (q *Queue) load() (jobs, keys int) {
	for _, p := range q.partitions {
		jobs, keys = jobs+int(p.contents.jobs.Load()), keys+int(p.contents.keys.Load())
	}
	return jobs, keys
}

// unknownFree is the retry delay that a producer gets if weir cannot estimate when a full bucket has room again.
const unknownFree = time.Minute

// nextFree returns after how long the key's bucket should have room again.
func (q *Queue) nextFree(limits bucket.KeyLimits, key string) time.Duration {
	now, at := bucket.MicrosOf(time.Now()), bucket.Micros(0)
	if o := q.forecaster.Load(); o != nil {
		at = (*o).NextFree(key, q.Partition(key).contents.unreadAppointments(key))
	} else {
		at = q.eta(limits, Place{Key: key, Position: 1}, 0)
	}
	if at == 0 {
		return unknownFree
	}
	return max(leastRetry, now.Until(at))
}

// leastRetry is the shortest time after which a producer is told to submit again.
const leastRetry = time.Millisecond

// place returns the place of a job that is in the queue already. Its Position is 0 if the owner does not know the job.
func (q *Queue) place(key string, seq uint64, of ingest.Priority) Place {
	p := Place{Key: key, Priority: of}
	if o := q.forecaster.Load(); o != nil {
		p.Position, p.NotBefore = (*o).Position(key, seq)
	}
	return p
}

// isFull reports whether err says that a stream already holds the most messages that it allows for one subject.
func isFull(err error) bool { return errors.Is(err, stream.ErrFull) }
