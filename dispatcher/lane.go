package dispatcher

import (
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/trace"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// env is what the lanes of all apis share: connections, streams, and settings of the process.
type env struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	letters  *deadletter.Writer
	control  jetstream.KeyValue // nil: jobs that are deleted while weir is stopped are not missed
	instance string
	version  string
	now      func() bucket.Micros
	ahead    func() bucket.Micros // by how much calendars are ahead of now
	leeway   time.Duration        // allowed between the clocks of leaders, and between a result and its record
	recorder *recorder.Recorder
	tracer   *trace.Tracer // nil: no spans are written
	restored *Restoration  // nil unless the streams were put back from a backup
	changed  func(StreamChange)
	shared   bool // other replicas may own partitions
	log      *slog.Logger

	metrics *metrics
	results *stream.Writer
	calls   *stream.Writer
	tail    *ledger.Tail
}

// record writes a record to the ledger if may allows it, and notes in the flight recorder that the record is stored.
func (e *env) record(may func() bool, c *ledger.Record) (seq uint64, err error) {
	stored := e.calls.WriteWhile(may, c.Message())
	if stored.Err == nil {
		e.recorder.Recorded(stored.Seq)
	}
	return stored.Seq, stored.Err
}

// reply sends a result to the reply subject that its job named.
func (e *env) reply(subject string, result *nats.Msg) {
	header := nats.Header{}
	for name, values := range result.Header {
		if name != "Nats-Msg-Id" {
			header[name] = values
		}
	}
	if err := e.letters.Reply(&nats.Msg{Subject: subject, Header: header, Data: result.Data}); err != nil {
		e.log.Warn("could not send a result to its reply subject; it is stored in the results", "err", err)
	}
}

// lane is what the parts of an api's worker share: the api's schedule and the partitions that this process owns. mu
// guards both. Nothing may wait while it holds mu.
type lane struct {
	env     *env
	name    string // of the api
	metrics *apiMetrics
	log     *slog.Logger
	queue   *queue.Queue
	clock   schedule.StoreClock // by which the store of slots counts
	now     func() bucket.Micros

	mu         sync.Mutex // guards what follows, down to wake
	s          *schedule.Schedule
	terms      *terms       // in force
	partitions []*partition // by number, nil if this process does not own it
	wake       chan struct{}

	running  sync.WaitGroup // goroutines of jobs
	stopping chan struct{}  // closed when nothing new starts; jobs must then not wait for room in memory
	stopped  chan struct{}  // closed when no slot is granted any more; jobs must then not wait for one
}

func newLane(e *env, api string, q *queue.Queue, clock schedule.StoreClock) *lane {
	return &lane{
		env: e, name: api, log: e.log.With("api", api), metrics: e.metrics.of(api), queue: q, clock: clock, now: e.now,
		wake: make(chan struct{}, 1), stopping: make(chan struct{}), stopped: make(chan struct{}),
		partitions: make([]*partition, len(q.Partitions())),
	}
}

// wakeUp makes the loop step again.
func (l *lane) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// update changes the schedule under the lock and makes the loop step again.
func (l *lane) update(do func(s *schedule.Schedule)) {
	l.mu.Lock()
	do(l.s)
	l.mu.Unlock()
	l.wakeUp()
}

// eachLocked calls do for each of many queues under the lock, and releases the lock after every few, so that a
// partition with a million jobs does not delay calls of other partitions. The caller must not hold the lock. The map of
// queues may change meanwhile: Go's range over a map allows that.
func (l *lane) eachLocked(all iter.Seq[*schedule.KeyQueue], do func(q *schedule.KeyQueue)) {
	seen := 0
	l.mu.Lock()
	for q := range all {
		do(q)
		if seen++; seen%lookAtOnce == 0 {
			l.mu.Unlock()
			l.mu.Lock()
		}
	}
	l.mu.Unlock()
}

// present returns the api's present configuration.
func (l *lane) present() *httpcall.API {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms.api
}

// ownedPartition returns this process's tenure of a partition, nil if it does not own the partition.
func (l *lane) ownedPartition(number int) *partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partitions[number]
}

// restLocked lets a job wait until notBefore, without a goroutine.
func (l *lane) restLocked(j *job, notBefore bucket.Micros) {
	j.orders = nil
	l.s.Rest(j.Job, notBefore)
}

// madeLocked marks a job as ready.
func (l *lane) madeLocked(j *job) {
	l.s.Pipe.LearnLead(j.staged.Until(l.now()))
	l.s.Loaded(j.Job)
}

// unstage withdraws a job that was being made ready.
func (l *lane) unstage(j *job) { l.update(func(s *schedule.Schedule) { s.Unstage(j.Job) }) }

// logOf returns a logger for lines about a job.
func (l *lane) logOf(j *job) *slog.Logger {
	if j.message == nil {
		return l.log.With("key", j.Queue.Key, "seq", j.Seq)
	}
	log := l.log.With("job_id", j.message.ID, "key", j.Queue.Key, "seq", j.Seq)
	if j.message.Trace.Parent == "" && j.traced.Recorded() {
		return log.With("trace_id", j.traced.TraceID())
	}
	return j.message.Trace.Log(log)
}

// heldAtMostLocked limits the end of a hold that was read from a stream: counted from now, to the longest hold that
// this worker would write. A mark or record with a later end is damaged, or was not written by weir.
func (l *lane) heldAtMostLocked(until bucket.Micros) bucket.Micros {
	most := l.now().Add(max(schedule.MostHold, l.terms.policy.Retry.Max))
	if until <= most {
		return until
	}
	l.log.Warn("a stored mark or record asks for a longer hold than weir ever sets; it is damaged or not weir's, and the hold is shortened",
		"until", until.Time(), "instead", most.Time())
	return most
}

// tellCrash logs a bug in weir that concerns one job.
func (l *lane) tellCrash(j *job, c *crash) {
	l.logOf(j).Error("a bug in weir: the handling of a job crashed; please report it with this stack", "err", c, "stack", string(c.stack))
}

// loadTimeout bounds the loading of one message; loadRetry is the wait after a failed load.
const (
	loadTimeout = 10 * time.Second
	loadRetry   = time.Second
)

// leaseCheck is how often an idle worker checks whether it may call.
const leaseCheck = 250 * time.Millisecond

// workerCounts are a worker's figures for metrics and states.
type workerCounts struct {
	schedule.Counts
	owned   int       // partitions
	expires time.Time // when the first certificate expires; zero if there is none
}

func (w *lane) counts() workerCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := func(key string) bool { return w.partitions[w.queue.Partition(key).Number()] != nil }
	n := workerCounts{Counts: w.s.At(w.now()).Count(ours), expires: w.terms.call.Conns.Expires()}
	for _, p := range w.partitions {
		if p != nil && p.Open {
			n.owned++
		}
	}
	return n
}

// lookAtOnce bounds the queues that are looked at under one hold of the lock.
const lookAtOnce = 1024

// ErrNoAPI says that an api is not dispatched here.
var ErrNoAPI = errors.New("no such api is dispatched here")

// ErrNotOwner says that another replica owns a key's partition.
var ErrNotOwner = errors.New("another replica owns the key")
