package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/embedded"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Worker is one running weir: everything `weir serve` starts, in one process.
type Worker struct {
	settings *config.Settings
	config   *config.Config // that it started with; follower has the present one
	log      *slog.Logger
	registry *prometheus.Registry
	clock    *clock
	cleanups []cleanup

	server    *embedded.Server // nil with an external one
	room      int64            // bytes the streams may take together, 0 where nothing says
	holdings  *queue.Holdings  // of all apis
	denied    denials
	nc        *nats.Conn
	js        jetstream.JetStream
	control   jetstream.KeyValue
	office    *deadletter.Office
	opened    []*openAPI // at the start
	dispatch  *dispatcher.Dispatcher
	dedupe    *queue.Dedupe
	levels    levelBook // of the shared limits
	follower  *follower
	storeRoom *storeRoom
	foreign   *foreignWatch
	pauses    *pauses
	redis     *redisLink      // nil where limits are counted in the process
	shares    *lease.Registry // where replicas share the partitions, with an external server
	intake    *ingest.Service
	http      *console.Server
	reloads   chan struct{} // asks for one

	soft, hard, base             context.Context
	stopSoft, stopHard, stopBase context.CancelCauseFunc
	lower                        errgroup.Group  // queues and office
	upper                        *errgroup.Group // dispatch
	done                         chan struct{}
	failed                       chan error // of a lower part
	err                          error
}

// StartWorker starts everything and returns when jobs are taken and dispatched, or with an error and nothing running.
//
// It is one straight line, since nearly every step needs what an earlier one made.
func StartWorker(ctx context.Context, s *config.Settings, log *slog.Logger) (started *Worker, err error) {
	return startWorkerAt(ctx, s, log, newClock())
}

func startWorkerAt(ctx context.Context, s *config.Settings, log *slog.Logger, c *clock) (started *Worker, err error) {
	w := &Worker{settings: s, log: log, registry: newRegistry(), clock: c, done: make(chan struct{}), failed: make(chan error, 1), reloads: make(chan struct{}, 1)}
	defer func() {
		w.denied.tell(nil)
		if err != nil {
			err = errors.Join(w.denied.explain(explainStart(explainOverlap(w.js, err))), w.undo())
		}
	}()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	w.denied.tell(giveUp) // who may not do what a start needs need not wait for an answer
	w.base, w.stopBase = context.WithCancelCause(context.WithoutCancel(ctx))
	w.hard, w.stopHard = context.WithCancelCause(w.base)
	w.soft, w.stopSoft = context.WithCancelCause(w.hard)
	w.onStop("contexts", func() error { w.stopBase(errStopped); return nil })

	// What can refuse the start comes before anything changes that others see, and before the first call.
	file, err := readConfigFile(s.Config)
	if err != nil {
		return nil, err
	}
	if err := w.bound(); err != nil {
		return nil, err
	}
	if err := w.listenHTTP(); err != nil {
		return nil, err
	}
	if err := w.connect(ctx, file); err != nil {
		return nil, err
	}
	if err := w.refuseForeign(ctx); err != nil {
		return nil, err
	}
	if w.control, err = ensureControl(ctx, w.js, s.Replicas); err != nil {
		return nil, err
	}
	store, err := ensureConfigStore(ctx, w.js, s.Replicas)
	if err != nil {
		return nil, err
	}
	adopted, err := adopt(ctx, store, file)
	if err != nil {
		return nil, err
	}
	w.config = adopted.present.config
	if w.dedupe, err = adopted.dedupe(ctx); err != nil {
		return nil, err
	}
	if err := refuseUnsupported(w.config); err != nil {
		return nil, err
	}
	if w.server == nil {
		if err := fitsPayload(w.config, w.nc); err != nil {
			return nil, err
		}
	}
	if w.redis, err = dialRedis(ctx, s, w.registry, log); err != nil {
		return nil, err
	}
	if w.redis != nil {
		w.onStop("redis connection", w.redis.close)
	}
	if err := w.share(ctx); err != nil {
		return nil, err
	}
	if err := w.open(ctx, adopted.former); err != nil {
		return nil, err
	}
	if err := w.settle(ctx, adopted); err != nil {
		return nil, err
	}
	w.lowerGo(func() error { return w.office.Run(w.base) })
	for _, a := range w.opened {
		w.runAPI(a)
	}
	w.storeRoom = newStoreRoom(w.js, w.room, w.log)
	w.follower = newFollower(w, store, adopted.present)
	w.upper, _ = errgroup.WithContext(w.base)
	if w.dispatch != nil {
		w.upper.Go(func() error { return w.dispatch.Run(w.soft, w.hard) })
		w.lowerGo(func() error { return w.pauses.run(w.soft) })
	}
	w.lowerGo(func() error { return w.follower.run(w.soft) }) // no lease counts before it has seen the newest
	if w.server == nil {
		w.lowerGo(func() error { return w.watchMove(w.soft) })
		watch := nodeWatch{nc: w.nc, js: w.js, silent: nodeSilent, log: log}
		w.lowerGo(func() error { return watch.run(w.soft) })
	}
	w.onStop("dispatch and storage", w.wait)
	if w.dispatch != nil {
		if err := w.awaitDispatch(ctx); err != nil {
			return nil, err
		}
		w.awaitAccounts(ctx)
	}
	w.storeRoom.look(ctx)
	w.lowerGo(func() error { return w.storeRoom.run(w.base) })
	w.lowerGo(func() error { return w.foreign.run(w.soft) })
	w.lowerGo(func() error { return w.watchMemory(w.base) })
	w.lowerGo(func() error { w.clock.watch(w.base, w.log); return nil })
	if err := w.answerOperators(); err != nil {
		return nil, err
	}
	if err := w.takeJobs(); err != nil {
		return nil, err
	}
	w.tellLeftovers(ctx, w.config, leftAtStart)
	w.lowerGo(func() error { return w.reloading(w.soft) })
	w.serveHTTP()
	go w.watch()
	return w, nil
}

// open makes every stream exist and puts the parts together. Streams that all apis share stay as former has them.
func (w *Worker) open(ctx context.Context, former *config.Config) (err error) {
	if w.office, err = deadletter.Open(ctx, w.officeOptions(former)); err != nil {
		return err
	}
	if w.settings.Has(config.RoleDispatch) {
		opts := w.dispatchOptions(w.config)
		opts.ResultsAge = former.Results.MaxAge
		if w.dispatch, err = dispatcher.Open(ctx, opts); err != nil {
			return err
		}
		if w.pauses, err = openPauses(ctx, w); err != nil {
			return err
		}
		w.registry.MustRegister(&w.levels)
	}
	for i := range w.config.APIs {
		a, err := w.openAPI(ctx, &w.config.APIs[i], w.config)
		if err != nil {
			return err
		}
		w.opened = append(w.opened, a)
		if w.dispatch != nil {
			w.dispatch.AddAPI(a.lane)
		}
	}
	if err := w.fitsMemory(); err != nil {
		return err
	}
	return w.rememberMoved(ctx)
}

// settle puts the configuration in force that the worker starts by: the last thing that is done before calls begin.
func (w *Worker) settle(ctx context.Context, a *adoption) error {
	told, err := a.store(ctx)
	if err != nil {
		return err
	}
	w.dedupeChanged(ctx)
	if told != nil {
		w.tellConfig(ctx, *told)
	}
	return w.ensureStreams(ctx, a.former, w.config)
}

// ensureStreams brings the streams that all apis share from the ages and sizes of one configuration to those of another.
func (w *Worker) ensureStreams(ctx context.Context, from, to *config.Config) error {
	if to.DeadLetters != from.DeadLetters {
		if err := deadletter.EnsureStreams(ctx, w.officeOptions(to)); err != nil {
			return err
		}
	}
	if to.Results.MaxAge != from.Results.MaxAge && w.dispatch != nil {
		return dispatcher.EnsureStreams(ctx, w.dispatchOptions(to))
	}
	return nil
}

func (w *Worker) officeOptions(c *config.Config) deadletter.Options {
	return deadletter.Options{
		Conn: w.nc, JetStream: w.js, Replicas: w.settings.Replicas, MaxAge: c.DeadLetters.MaxAge, MaxBytes: c.DeadLetters.MaxBytes,
		MaxStore: 2 * w.maxStore(), MaxWaiting: w.holdings.IntakeBytes(), Log: w.log, Registerer: w.registry,
	}
}

func (w *Worker) dispatchOptions(c *config.Config) dispatcher.Options {
	return dispatcher.Options{
		Conn: w.nc, JetStream: w.js, Office: w.office, Instance: w.settings.Instance, Version: version(), Now: w.clock.Now, Ahead: w.clock.Ahead,
		Replicas: w.settings.Replicas, Dedupe: w.dedupe, ResultsAge: c.Results.MaxAge, LedgerAge: ledgerAge, MaxStore: w.maxStore(),
		Registry: w.shares, MayBegin: w.mayBegin, SharedBy: w.sharedBy(), Log: w.log, Registerer: w.registry,
	}
}

// maxStore bounds what one stream may ask of the store, 0 for no bound: the letters get twice as much, the queues what is
// left.
func (w *Worker) maxStore() int64 {
	return w.room / 8
}

// share finds the other replicas on an external server, and makes sure that this one may dispatch beside them. An
// embedded server has nobody else who dispatches: its leases stay empty.
func (w *Worker) share(ctx context.Context) error {
	if !w.settings.Has(config.RoleDispatch) {
		return nil
	}
	shares, err := lease.OpenRegistry(ctx, w.js, w.settings.Replicas)
	if err != nil || w.server != nil {
		return err
	}
	w.shares = shares
	rules := map[string]bucket.Rules{}
	for i := range w.config.APIs {
		rules[w.config.APIs[i].Name] = w.config.APIs[i].Rules
	}
	return ownership.AwaitNoRival(ctx, w.shares, w.sharedBy(), rules)
}

// sharedBy tells the other replicas where this one counts shared limits.
func (w *Worker) sharedBy() string {
	if w.redis != nil {
		return sharedByRedis
	}
	return ""
}

// sharedByRedis is how a replica tells the others that it counts limits in Redis.
const sharedByRedis = "redis"

// ledgerAge is how long call records are kept: long enough for a monthly invoice to be held against them.
const ledgerAge = 62 * 24 * time.Hour

// awaitDispatch waits until the queues have been read, or their reading failed.
func (w *Worker) awaitDispatch(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- w.upper.Wait() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- w.dispatch.Ready(ctx) }()
	select {
	case err := <-ready:
		return err
	case err := <-failed:
		if err == nil {
			err = errStopped
		}
		return err
	}
}

// answerOperators starts to tell operators what waits.
func (w *Worker) answerOperators() error {
	if w.dispatch == nil {
		return nil
	}
	stop, err := startOperator(w)
	if err == nil {
		w.onStop("operators' service", stop)
	}
	return err
}

// takeJobs starts the intake.
func (w *Worker) takeJobs() error {
	if !w.settings.Has(config.RoleIngest) {
		return nil
	}
	if w.server == nil { // else the server's memory ends only with ours
		ends := ledger.Follower{JetStream: w.js, Dedupe: w.dedupe, Tell: w.follower.recall, Log: w.log}
		w.lowerGo(func() error { return ends.Run(w.soft) })
	}
	var err error
	w.intake, err = ingest.Start(ingest.Options{
		Conn: w.nc, Version: version(), APIs: w.follower.intake,
		Bury: w.office.BuryRefused, MaxWaiting: w.holdings.IntakeBytes(), Log: w.log, Registerer: w.registry,
	})
	if err != nil {
		return err
	}
	if err := w.nc.FlushTimeout(connectTimeout); err != nil { // until then the server does not know that we take jobs
		return fmt.Errorf("start the intake: %w", err)
	}
	return nil
}

// listenHTTP takes the address of the HTTP side, or says why it cannot be had.
func (w *Worker) listenHTTP() (err error) {
	if w.settings.HTTPListen == "" {
		return nil
	}
	w.http, err = console.Listen(console.Options{
		Listen: w.settings.HTTPListen, Token: w.settings.HTTPToken.Reveal(), Gatherer: w.registry, Version: version(), Ready: w.ready,
	})
	if err == nil {
		w.onStop("http listener", w.http.Close)
	}
	return err
}

// serveHTTP answers from then on.
func (w *Worker) serveHTTP() {
	if w.http == nil {
		return
	}
	w.http.Serve()
	w.onStop("http", w.http.Close) // before what it asks
	w.log.Log(w.base, levelAlways, "listening", "what", "http", "addr", w.http.Addr())
}

// ready reports whether a job could be taken and dispatched now: not by a ping, but by a write that the store must
// acknowledge.
func (w *Worker) ready(ctx context.Context) error {
	if w.soft.Err() != nil {
		return errStopped
	}
	if w.dispatch != nil {
		if err := w.dispatch.Ready(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(w.storeRoom.err(), w.foreign.err()); err != nil {
		return err
	}
	if _, err := w.control.Put(ctx, "canary."+w.settings.Instance, []byte(stampNow())); err != nil {
		return fmt.Errorf("JetStream does not store: %w", err)
	}
	return nil
}

// NATSURL is where producers connect.
func (w *Worker) NATSURL() string {
	if w.server != nil {
		return w.server.ClientURL()
	}
	return w.nc.ConnectedUrl()
}

// HTTPAddr is where metrics and health are served, "" when nowhere.
func (w *Worker) HTTPAddr() string {
	if w.http == nil {
		return ""
	}
	return w.http.Addr()
}
