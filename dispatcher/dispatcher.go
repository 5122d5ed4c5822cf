package dispatcher

import (
	"context"
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
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/trace"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Options of a Dispatcher. All but Control, Registry, MayBegin, SharedBy, Recorder, Tail, Restored, Tracer and Registerer are required.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Letters   *deadletter.Writer
	Control   jetstream.KeyValue // where the right to end letters is kept; nil where no api is asked about letters
	Instance  string             // this replica's name
	Version   string
	// Registry is where the replicas share the partitions out; nil where no other replica can dispatch.
	Registry *lease.Registry
	// MayBegin is asked after every lease that is begun, before anything is called by it: whether the jobs are to be called
	// here still, and whether this replica has heard all that operators have said. With an error that wraps ErrElsewhere the
	// dispatcher ends, with another one it begins anew. Nil where there is no Registry.
	MayBegin func(ctx context.Context) error
	// SharedBy says where limits shared by all keys are counted: an address that all replicas must have in common, empty
	// for this process.
	SharedBy string
	// Recorder notes how far calls have come, and knows how far those of ended processes had; nil for none.
	Recorder   *recorder.Recorder
	Now        func() bucket.Micros // the clock of every worker and its store
	Ahead      func() bucket.Micros // by how much calendars are ahead of it; nil: by nothing
	Replicas   int
	Dedupe     *queue.Dedupe // how long a job's id is known
	ResultsAge time.Duration
	MaxStore   int64         // bounds what one stream may ask of the server, 0 for no bound
	LedgerAge  time.Duration // how long call records are kept
	Tail       ledger.Bounds
	Restored   *Restoration // nil: the streams are as weir left them
	// Changed hears what somebody did by hand to a queue's stream. It must not block. Nil: nobody does.
	Changed func(StreamChange)
	// FirstSeq is where streams begin that are made, by name; 1 where it says nothing. A ledger that begins later is known to lack what was
	// before: keys and limits count on it.
	FirstSeq   map[string]uint64
	Tracer     *trace.Tracer // nil: no spans are written
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// APIOptions are what one api's dispatch needs. All are required.
type APIOptions struct {
	API   *httpcall.API
	Queue *queue.Queue
	Store Store
	// Clock says by which clock the store counts. A store that counts by another is asked in the background.
	Clock schedule.StoreClock
	// TAT is the theoretical arrival time that the store knows of a key, 0 if none.
	TAT func(key string) bucket.Micros
	// Checkpoint asks for the store's state to be kept at once. It does not block.
	Checkpoint func()
}

// Store is a store of slots whose rules can be changed. With an error Apply has changed nothing.
type Store interface {
	bucket.Store
	Apply(rules bucket.Rules) error
}

// Dispatcher owns the partitions of every api it was given and makes their calls.
type Dispatcher struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	results *stream.Writer
	calls   *stream.Writer
	tail    *ledger.Tail
	owner   *ownership.Manager // nil: every partition is this process's
	failed  chan error
	down    atomic.Int32    // workers whose store does not answer
	added   chan *apiWorker // while it runs

	tailLoads tailLoads

	mu      sync.Mutex // guards what follows
	workers []*apiWorker
	pauses  map[string]map[string]schedule.Pause // by api and key
}

// Bounds of the records that wait to be stored; the calls running at once bound them too.
const (
	maxRecords     = 65536
	maxRecordBytes = 512 << 20

	maxResultsBytes = 8 << 30
	maxLedgerBytes  = 8 << 30
)

// Open makes the streams of results and calls exist. Add workers, then Run.
func Open(ctx context.Context, o Options) (*Dispatcher, error) {
	if o.Ahead == nil {
		o.Ahead = func() bucket.Micros { return 0 }
	}
	d := &Dispatcher{
		opts: o, log: o.Log.With("component", "dispatcher"), failed: make(chan error, 1), added: make(chan *apiWorker), tail: ledger.NewTail(),
		pauses: map[string]map[string]schedule.Pause{},
	}
	if err := EnsureStreams(ctx, o); err != nil {
		return nil, err
	}
	var err error
	if o.Registry != nil {
		d.owner = ownership.NewManager(ownership.ManagerOptions{
			Registry: o.Registry, Instance: o.Instance, SharedBy: o.SharedBy, MayBegin: o.MayBegin,
			Host: host{d}, Log: d.log,
		})
	}
	if d.results, err = stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxRecords, maxRecordBytes); err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if d.calls, err = stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxRecords, maxRecordBytes); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	d.metrics = newMetrics(d, o.Registerer)
	return d, nil
}

// AddAPI adds an api. It must be called before Run. The api's queue is told whom to ask for times.
func (d *Dispatcher) AddAPI(o APIOptions) { d.add(o) }

// StartAPI adds an api while Run runs, and returns when its queue has been read, or been offered to the replicas that
// share it.
func (d *Dispatcher) StartAPI(ctx context.Context, o APIOptions) error {
	w := d.add(o)
	select {
	case d.added <- w:
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", w.name, context.Cause(ctx))
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
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.pauses[w.name] {
		w.s.Pause(key, p)
	}
	d.workers = append(d.workers, w)
	slices.SortFunc(d.workers, func(a, b *apiWorker) int { return strings.Compare(a.name, b.name) })
	return w
}

// Run makes calls until soft ends, then lets the running ones end until hard ends, and returns when everything it
// started has ended.
func (d *Dispatcher) Run(soft, hard context.Context) error {
	if d.owner == nil {
		if err := d.loadTails(soft); err != nil {
			return err
		}
	}
	writing, stopWriting := context.WithCancel(context.WithoutCancel(hard))
	defer stopWriting()
	var writers errgroup.Group
	writers.Go(func() error { return d.results.Run(writing) })
	writers.Go(func() error { return d.calls.Run(writing) })

	workers, failing := errgroup.WithContext(context.WithoutCancel(soft))
	ctx, stopWorkers := context.WithCancel(failing)
	defer stopWorkers()
	sharing, stopSharing := context.WithCancel(failing)
	defer stopSharing()
	defer context.AfterFunc(soft, stopSharing)()
	workers.Go(func() error {
		defer stopWorkers() // a worker works until its partitions are given up
		if d.owner != nil {
			return d.owner.Run(sharing, hard)
		}
		<-sharing.Done()
		return nil
	})
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

// Ready blocks until a job of every api would be dispatched, here or by another replica, or ctx ends.
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
		return fmt.Errorf("api %s is not read yet: %w", w.name, context.Cause(ctx))
	}
}

// Session names the lease by which this replica dispatches; empty where it has none, or needs none.
func (d *Dispatcher) Session() string {
	if d.owner == nil {
		return ""
	}
	return d.owner.Session()
}

// CheckShared says why rules, by api, cannot be put in force beside the replicas that dispatch now.
func (d *Dispatcher) CheckShared(rules map[string]bucket.Rules) error {
	if d.owner == nil {
		return nil
	}
	return d.owner.CheckShared(rules)
}

// Beside reports whether other replicas dispatch too, as far as this one knows.
func (d *Dispatcher) Beside() bool { return d.owner != nil && d.owner.Beside() }

// fail ends Run with an error.
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
		if w.name == api {
			return w
		}
	}
	return nil
}

// reply sends a result to the subject a job named.
func (d *Dispatcher) reply(subject string, result *nats.Msg) {
	header := nats.Header{}
	for name, values := range result.Header {
		if name != "Nats-Msg-Id" {
			header[name] = values
		}
	}
	if err := d.opts.Letters.Reply(&nats.Msg{Subject: subject, Header: header, Data: result.Data}); err != nil {
		d.log.Warn("a result could not be sent to its reply subject; it is in the results", "err", err)
	}
}

// EnsureStreams makes the streams of results and calls exist, or brings them to what the options say of ages.
func EnsureStreams(ctx context.Context, o Options) error {
	bytes := func(want int64) int64 {
		if o.MaxStore > 0 {
			return min(want, o.MaxStore)
		}
		return want
	}
	for _, s := range []stream.Options{{Kind: "results", Configured: stream.AgeBound, Config: jetstream.StreamConfig{
		Name: ledger.ResultsStream, Subjects: []string{ledger.ResultSubjects.Below(), fenceSubject}, MaxAge: o.ResultsAge, MaxBytes: bytes(maxResultsBytes),
		Description: "weir: results of finished jobs, weir.results.<api>.<key>",
	}}, {Kind: "ledger", Config: jetstream.StreamConfig{
		Name: ledger.CallsStream, Subjects: []string{ledger.CallSubjects.Below()}, MaxAge: o.LedgerAge, MaxBytes: bytes(maxLedgerBytes),
		Description: "weir: the ledger, one record per call, weir.calls.<api>.<key>",
	}}} {
		cfg := &s.Config
		s.Log, cfg.FirstSeq = o.Log, o.FirstSeq[cfg.Name]
		cfg.Retention, cfg.Storage, cfg.Replicas, cfg.Discard = jetstream.LimitsPolicy, jetstream.FileStorage, o.Replicas, jetstream.DiscardOld
		cfg.AllowDirect, cfg.AllowAtomicPublish = true, true
		if _, err := stream.EnsureStream(ctx, o.JetStream, s); err != nil {
			return err
		}
	}
	return nil
}
