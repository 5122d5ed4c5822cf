package dispatcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/fleet"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/inquiry"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/dispatcher/trace"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// StreamChange reports that one of weir's streams was changed by hand.
type StreamChange = lane.StreamChange

// Restoration says that the streams were put back from a backup.
type Restoration = lane.Restoration

// Errors of requests for an api or a key.
var (
	ErrNoAPI    = lane.ErrNoAPI
	ErrNotOwner = lane.ErrNotOwner
)

// Options are the settings of a Dispatcher. A field is required unless its comment says what its zero value does.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Letters   *deadletter.Writer
	// Control holds the right to end letters, notes of which jobs wait, and the holds that replicas share. Nil: weir asks
	// no api about letters, does not notice that jobs were deleted while it was stopped, and shares no holds.
	Control  jetstream.KeyValue
	Instance string // this replica's name
	Version  string
	// Registry is where the replicas claim their partitions. Nil if no other replica can dispatch.
	Registry *lease.Registry
	// MayBegin is called after each lease that begins, before any call is made under it. It checks that this replica
	// should still call the jobs, and has received everything that operators have set. If it returns an error for the
	// first lease, or one that wraps ErrElsewhere for any lease, Run ends with that error. After other errors the
	// dispatcher begins another lease. Nil if there is no Registry.
	MayBegin func(ctx context.Context) error
	// SharedBy is the address at which limits shared by all keys are counted. All replicas must have the same one.
	// Empty if this process counts them.
	SharedBy string
	// Recorder notes the state of calls, and knows the notes of ended processes. Nil for none.
	Recorder   *recorder.Recorder
	Now        func() bucket.Micros // the clock of every worker and its store
	Ahead      func() bucket.Micros // how far the clock of calendars is ahead of Now; nil: not at all
	Replicas   int
	Dedupe     *queue.Dedupe // how long a job's id is known
	ResultsAge time.Duration
	MaxStore   int64             // bounds the bytes that one stream may ask of the server; 0 for no bound
	LedgerAge  time.Duration     // how long call records are kept
	Tail       ledger.Bounds     // how far back the ledger's end is read; zero fields take the defaults
	Restored   *lane.Restoration // nil unless the streams were put back from a backup
	// Changed is called when a queue's stream was changed by hand. It must not block. Nil if not needed.
	Changed func(lane.StreamChange)
	// FirstSeq has the first sequence for each stream that is created, by the stream's name; a missing name means 1. If
	// a ledger's first sequence is greater, earlier records are known to be missing, and keys and limits take that into
	// account.
	FirstSeq   map[string]uint64
	Tracer     *trace.Tracer // nil: no spans are written
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics are registered
}

// APIOptions are the settings of one api's dispatch. All are required, except SlotTime if the store is in this process.
type APIOptions struct {
	API   *httpcall.API
	Queue *queue.Queue
	Store Store
	// Clock says by which clock the store counts. If the store counts by another machine's clock, the worker asks it in
	// the background.
	Clock schedule.StoreClock
	// SlotTime asks a store on another machine for the time of the clock by which it grants slots. It takes no slot.
	SlotTime func(ctx context.Context) (bucket.Micros, error)
	// TAT returns the theoretical arrival time that the store has for a key, 0 if it has none.
	TAT func(key string) bucket.Micros
	// Checkpoint makes the store save its state at once. It does not block.
	Checkpoint func()
}

// Store is a store of slots whose rules can be changed. If Apply returns an error, it has changed nothing.
type Store interface {
	bucket.Store
	Apply(rules bucket.Rules) error
}

// Dispatcher owns partitions of every api that it was given, and makes their calls.
type Dispatcher struct {
	Desk   *desk.Desk
	env    *lane.Env
	opts   Options
	owner  *ownership.Manager // nil: this process owns every partition
	board  *fleet.Board       // the holds that replicas share; nil if no other replica can dispatch
	failed chan error
	down   atomic.Int32    // how many workers have a store that does not answer
	added  chan *apiWorker // from StartAPI to Run

	tailLoads tailLoads

	mu      sync.Mutex // guards what follows
	workers []*apiWorker
}

// Bounds of the writes that wait in each of the two stream writers. The number of running calls bounds them, too.
const (
	maxRecords     = 65536
	maxRecordBytes = 512 << 20
)

// Open returns a dispatcher, and creates the streams of results and of records of calls if they are missing. Add APIs,
// then call Run.
func Open(ctx context.Context, o Options) (*Dispatcher, error) {
	if o.Ahead == nil {
		o.Ahead = func() bucket.Micros { return 0 }
	}
	d := newDispatcher(o)
	if err := EnsureStreams(ctx, o); err != nil {
		return nil, err
	}
	var err error
	if o.Registry != nil {
		d.owner = ownership.NewManager(ownership.ManagerOptions{
			Registry: o.Registry, Instance: o.Instance, SharedBy: o.SharedBy, MayBegin: d.mayBegin,
			Host: host{d}, Log: d.env.Log,
		})
		if o.Control != nil {
			d.board = fleet.NewBoard(fleet.Options{
				JetStream: o.JetStream, Control: o.Control, Instance: o.Instance, Session: rand.Text(), Now: o.Now, Replicas: d.owner.Replicas, Log: o.Log,
			})
		}
	}
	if d.env.Results, err = stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxRecords, maxRecordBytes); err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if d.env.Calls, err = stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxRecords, maxRecordBytes); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	d.env.Metrics = lane.NewMetrics(o.Registerer, &gauges{d: d})
	return d, nil
}

// mayBegin runs when a lease has begun. It blocks until Options.MayBegin returns and this process has put in force what
// the other replicas have found out about the apis.
func (d *Dispatcher) mayBegin(ctx context.Context) error {
	if err := d.opts.MayBegin(ctx); err != nil || d.board == nil {
		return err
	}
	return d.board.AwaitRead(ctx)
}

// newDispatcher returns a dispatcher that has opened nothing.
func newDispatcher(o Options) *Dispatcher {
	d := &Dispatcher{env: newEnv(&o), Desk: desk.New(o.Instance), opts: o, failed: make(chan error, 1), added: make(chan *apiWorker)}
	d.tailLoads = tailLoads{Env: d.env, opts: &d.opts, worker: d.worker}
	return d
}

// AddAPI adds an api, and makes its worker the forecaster of the api's queue. It must be called before Run.
func (d *Dispatcher) AddAPI(o APIOptions) { d.add(o) }

// StartAPI adds an api while Run runs. If replicas share the api's queue, StartAPI offers them its partitions and
// returns. Otherwise it blocks until the queue has been read, or ctx ends.
func (d *Dispatcher) StartAPI(ctx context.Context, o APIOptions) error {
	w := d.add(o)
	select {
	case d.added <- w:
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", w.Name, context.Cause(ctx))
	}
	if d.owner != nil {
		d.owner.Update(ctx)
		return nil
	}
	return w.awaitReady(ctx)
}

func (d *Dispatcher) add(o APIOptions) *apiWorker {
	w := newWorker(d, o)
	o.Queue.SetForecaster(w)
	d.Desk.Add(desk.NewAPI(w.Lane, w.slots.isDownLocked, w.poller.State))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workers = append(d.workers, w)
	slices.SortFunc(d.workers, func(a, b *apiWorker) int { return strings.Compare(a.Name, b.Name) })
	return w
}

// Run makes calls until soft ends, then lets running calls end until hard ends. It returns when every goroutine that it
// started has returned.
func (d *Dispatcher) Run(soft, hard context.Context) error {
	if d.owner == nil {
		if err := d.loadTails(soft); err != nil {
			return err
		}
	}
	writing, stopWriting := context.WithCancel(context.WithoutCancel(hard))
	defer stopWriting()
	var writers errgroup.Group
	writers.Go(func() error { return d.env.Results.Run(writing) })
	writers.Go(func() error { return d.env.Calls.Run(writing) })

	workers, failing := errgroup.WithContext(context.WithoutCancel(soft))
	ctx, stopWorkers := context.WithCancel(failing)
	defer stopWorkers()
	sharing, stopSharing := context.WithCancel(failing)
	defer stopSharing()
	defer context.AfterFunc(soft, stopSharing)()
	workers.Go(func() error {
		defer stopWorkers() // a worker runs until its partitions are given up
		if d.owner != nil {
			return d.owner.Run(sharing, hard)
		}
		<-sharing.Done()
		return nil
	})
	if d.board != nil {
		workers.Go(func() error { d.board.Run(ctx); return nil })
	}
	for _, w := range d.workersNow() {
		workers.Go(func() error { return w.run(ctx, hard) })
	}
	workers.Go(func() error { d.retireRecorders(ctx); return nil })
	if d.owner != nil {
		workers.Go(func() error { d.probeContacts(sharing); return nil })
	}
	workers.Go(func() error {
		for {
			select {
			case w := <-d.added:
				workers.Go(func() error { return w.run(ctx, hard) })
			case err := <-d.failed:
				return err
			case <-ctx.Done():
				return nil
			}
		}
	})
	err := workers.Wait()
	if d.owner != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(hard), lastWords)
		d.owner.End(last)
		cancel()
	}
	stopWriting()
	return errors.Join(err, writers.Wait())
}

// Ready blocks until every api's jobs would be dispatched, by this replica or another. It returns an error if ctx ends
// first.
func (d *Dispatcher) Ready(ctx context.Context) error {
	if d.owner == nil {
		for _, w := range d.workersNow() {
			if err := w.awaitReady(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	tick := time.NewTicker(closeCheck)
	defer tick.Stop()
	for {
		why := d.owner.Unready()
		if why == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		}
	}
}

func (w *apiWorker) awaitReady(ctx context.Context) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("api %s: its worker is not ready yet: %w", w.Name, context.Cause(ctx))
	}
}

// Session returns the name of the lease under which this replica dispatches. It is empty if the replica has no lease or
// needs none.
func (d *Dispatcher) Session() string {
	if d.owner == nil {
		return ""
	}
	return d.owner.Session()
}

// CheckShared returns an error if rules cannot be put in force while the present replicas dispatch. rules is indexed by
// api.
func (d *Dispatcher) CheckShared(rules map[string]bucket.Rules) error {
	if d.owner == nil {
		return nil
	}
	return d.owner.CheckShared(rules)
}

// Beside reports whether this replica knows of others that dispatch, too.
func (d *Dispatcher) Beside() bool { return d.owner != nil && d.owner.Beside() }

// fail makes Run return err. It does not block. If an earlier error waits for Run, err is dropped.
func (d *Dispatcher) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

func (d *Dispatcher) workersNow() []*apiWorker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.workers)
}

func (d *Dispatcher) worker(api string) *apiWorker {
	for _, w := range d.workersNow() {
		if w.Name == api {
			return w
		}
	}
	return nil
}

func newEnv(o *Options) *lane.Env {
	return &lane.Env{
		Conn: o.Conn, JS: o.JetStream, Letters: o.Letters, Control: o.Control, Instance: o.Instance, Version: o.Version, Now: o.Now, Ahead: o.Ahead,
		Leeway: o.Tail.OrDefault().Leeway, Recorder: o.Recorder, Tracer: o.Tracer, Restored: o.Restored, Changed: o.Changed, Shared: o.Registry != nil,
		Log: o.Log.With("component", "dispatcher"), Tail: ledger.NewTail(),
	}
}

// RedriveTerms returns the terms that a redrive of an api's letters needs, and whether the api is dispatched here.
func (d *Dispatcher) RedriveTerms(api string) (deadletter.Terms, bool) {
	w := d.worker(api)
	if w == nil {
		return deadletter.Terms{}, false
	}
	w.Mu.Lock()
	of := w.Terms.API
	w.Mu.Unlock()
	return deadletter.Terms{
		Rules: of.Rules, MaxBody: of.Rule.MaxBody, Price: of.Price, Idempotent: of.Idempotency != nil, Keyed: of.KeyIdentity(),
		KnowsKeys: of.KnowsKeys(), Key: of.Rule.Key, Dedupe: d.opts.Dedupe.Length() + ledger.ServerSkew,
	}, true
}

// CallsSince reads calls from the ledger, for a redrive.
func (d *Dispatcher) CallsSince(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
	return ledger.ReadSince(ctx, d.opts.JetStream, q, take)
}

// Reconcile asks an api what became of the call of one unknown letter, and ends the letter as the answer says
// (inquiry.Inquirer).
func (d *Dispatcher) Reconcile(ctx context.Context, api string, seq uint64) (inquiry.Reconciled, error) {
	w := d.worker(api)
	if w == nil {
		return inquiry.Reconciled{}, lane.ErrNoAPI
	}
	return w.inquirer.Reconcile(ctx, seq)
}

// EnsureStreams creates the streams of results and of records of calls, or updates their ages to those in the options.
func EnsureStreams(ctx context.Context, o Options) error {
	return settle.CreateStreams(ctx, settle.StreamOptions{
		JetStream: o.JetStream, Replicas: o.Replicas, ResultsAge: o.ResultsAge, LedgerAge: o.LedgerAge, MaxStore: o.MaxStore, FirstSeq: o.FirstSeq, Log: o.Log,
	})
}
