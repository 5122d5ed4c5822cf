package lane

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

// Env is what the lanes of all apis share: connections, streams, and settings of the process.
type Env struct {
	Conn     *nats.Conn
	JS       jetstream.JetStream
	Letters  *deadletter.Writer
	Control  jetstream.KeyValue // nil: jobs that are deleted while weir is stopped go unnoticed
	Instance string
	Version  string
	Now      func() bucket.Micros
	Ahead    func() bucket.Micros // how far the wall clock is ahead of Now
	Leeway   time.Duration        // allowed difference of leaders' clocks, and between a result and its record
	Recorder *recorder.Recorder
	Tracer   *trace.Tracer // nil: no spans are written
	Restored *Restoration  // nil unless the streams were put back from a backup
	Changed  func(StreamChange)
	Shared   bool // other replicas may own partitions
	Log      *slog.Logger

	Metrics *Metrics
	Results *stream.Writer
	Calls   *stream.Writer
	Tail    *ledger.Tail
}

// Record writes a record to the ledger if may returns true. If the record is stored, Record notes that in the flight
// recorder.
func (e *Env) Record(may func() bool, c *ledger.Record) stream.Answer {
	stored := e.Calls.WriteWhile(may, c.Message())
	if stored.Err == nil {
		e.Recorder.Recorded(stored.Seq)
	}
	return stored
}

// Reply sends a result to the reply subject that its job named.
func (e *Env) Reply(subject string, result *nats.Msg) {
	header := nats.Header{}
	for name, values := range result.Header {
		if name != "Nats-Msg-Id" {
			header[name] = values
		}
	}
	if err := e.Letters.Reply(&nats.Msg{Subject: subject, Header: header, Data: result.Data}); err != nil {
		e.Log.Warn("could not send a result to its reply subject; it is stored in the results", "err", err)
	}
}

// Lane is what the parts of an api's worker share: the api's schedule and the partitions that this process owns. Mu
// guards both. A goroutine that holds Mu must not wait.
type Lane struct {
	Env     *Env
	Name    string // of the api
	Metrics *APIMetrics
	Log     *slog.Logger
	Queue   *queue.Queue
	Clock   schedule.StoreClock // by which the store of slots counts
	Now     func() bucket.Micros

	Mu         sync.Mutex // guards what follows, down to Partitions
	Sched      *schedule.Schedule
	Terms      *Terms   // the terms in force
	Equals     *Equals  // nil if every job is called
	Partitions []*Owned // by number, nil if this process does not own the partition
	Wake       chan struct{}

	Running  sync.WaitGroup // goroutines of jobs
	Stopping chan struct{}  // closed when nothing new starts; jobs must then not wait for room in memory
	Stopped  chan struct{}  // closed when no slot is granted any more; jobs must then not wait for one
}

// New returns a lane whose Sched and Terms are nil. The caller must set both.
func New(e *Env, api string, q *queue.Queue, clock schedule.StoreClock) *Lane {
	return &Lane{
		Env: e, Name: api, Log: e.Log.With("api", api), Metrics: e.Metrics.of(api), Queue: q, Clock: clock, Now: e.Now,
		Wake: make(chan struct{}, 1), Stopping: make(chan struct{}), Stopped: make(chan struct{}),
		Partitions: make([]*Owned, len(q.Partitions())),
	}
}

// WakeUp makes the worker's loop step again.
func (l *Lane) WakeUp() {
	select {
	case l.Wake <- struct{}{}:
	default:
	}
}

// Update changes the schedule under the lock and makes the worker's loop step again.
func (l *Lane) Update(do func(s *schedule.Schedule)) {
	l.Mu.Lock()
	do(l.Sched)
	l.Mu.Unlock()
	l.WakeUp()
}

// EachLocked calls do for each of many queues under the lock. It releases the lock after every LookAtOnce queues, so
// that a partition with a million jobs does not delay calls of other partitions. The caller must not hold the lock. The
// map of queues may change meanwhile: Go's range over a map allows that.
func (l *Lane) EachLocked(all iter.Seq[*schedule.KeyQueue], do func(q *schedule.KeyQueue)) {
	seen := 0
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for q := range all {
		do(q)
		if seen++; seen%LookAtOnce == 0 {
			l.Mu.Unlock()
			l.Mu.Lock()
		}
	}
}

// Present returns the api's present configuration.
func (l *Lane) Present() *httpcall.API {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Terms.API
}

// OwnedPartition returns this process's tenure of a partition, nil if it does not own the partition.
func (l *Lane) OwnedPartition(number int) *Owned {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Partitions[number]
}

// RestLocked lets a job wait until notBefore, without a goroutine.
func (l *Lane) RestLocked(j *Job, notBefore bucket.Micros) {
	j.Orders = nil
	l.Sched.Rest(j.Job, notBefore)
	l.LeadRestedLocked(j)
}

// MadeLocked marks a job as ready.
func (l *Lane) MadeLocked(j *Job) {
	l.Sched.Pipe.LearnLead(j.Staged.Until(l.Now()))
	l.Sched.Loaded(j.Job)
}

// Unstage withdraws a job that was being made ready.
func (l *Lane) Unstage(j *Job) { l.Update(func(s *schedule.Schedule) { s.Unstage(j.Job) }) }

// LogOf returns a logger for lines about a job.
func (l *Lane) LogOf(j *Job) *slog.Logger {
	if j.Message == nil {
		return l.Log.With("key", j.Queue.Key, "seq", j.Seq)
	}
	log := l.Log.With("job_id", j.Message.ID, "key", j.Queue.Key, "seq", j.Seq)
	if j.Message.Trace.Parent == "" && j.Traced.Recorded() {
		return log.With("trace_id", j.Traced.TraceID())
	}
	return j.Message.Trace.Log(log)
}

// WallTime returns what the wall clock says when the lane's clock says at. Times that later processes read are stored
// as times of the wall clock.
func (l *Lane) WallTime(at bucket.Micros) bucket.Micros { return at + l.Env.Ahead() }

// WallNow returns the wall clock's time.
func (l *Lane) WallNow() time.Time { return l.WallTime(l.Now()).Time() }

// HeldAtMostLocked converts the stored end of a hold to the lane's clock. It returns at most the end of the longest
// hold that this worker would write now. A mark or record with a later end is damaged, or was not written by weir.
func (l *Lane) HeldAtMostLocked(stored bucket.Micros) bucket.Micros {
	until := stored - l.Env.Ahead()
	most := l.Now().Add(max(schedule.MostHold, l.Terms.Policy.Retry.Max))
	if until <= most {
		return until
	}
	l.Log.Warn("a stored mark or record asks for a longer hold than weir ever sets; it is damaged or not weir's, and the hold is shortened",
		"until", until.Time(), "instead", most.Time())
	return most
}

// TellCrash logs a bug in weir that concerns one job.
func (l *Lane) TellCrash(j *Job, c *Crash) {
	l.LogOf(j).Error("a bug in weir: the handling of a job crashed; please report it with this stack", "err", c, "stack", string(c.stack))
}

// LoadTimeout bounds the loading of one message. LoadRetry is the wait after a failed load.
const (
	LoadTimeout = 10 * time.Second
	LoadRetry   = time.Second
)

// LeaseCheck is how often an idle worker checks whether it may call.
const LeaseCheck = 250 * time.Millisecond

// Counts are a lane's figures for metrics and states.
type Counts struct {
	schedule.Counts
	Owned   int       // partitions
	Expires time.Time // when the first certificate expires; zero if there is none
}

// Counts returns the lane's figures.
func (l *Lane) Counts() Counts {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	ours := func(key string) bool { return l.Partitions[l.Queue.Partition(key).Number()] != nil }
	n := Counts{Counts: l.Sched.At(l.Now()).Count(ours), Expires: l.Terms.Call.Conns.Expires()}
	for _, p := range l.Partitions {
		if p != nil && p.Open {
			n.Owned++
		}
	}
	return n
}

// LookAtOnce bounds the queues that EachLocked handles before it releases the lock.
const LookAtOnce = 1024

// ErrNoAPI says that an api is not dispatched here.
var ErrNoAPI = errors.New("no such api is dispatched here")

// ErrNotOwner says that another replica owns a key's partition.
var ErrNotOwner = errors.New("another replica owns the key")
