package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/httpd/webhook"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/cmd/weir/internal/serve/otlp"
	"weir/cmd/weir/internal/serve/restoreguard"
	"weir/cmd/weir/internal/serve/streamwatch"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/recorder"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// link is the worker's connection to NATS, with the settings and the registry of the process.
type link struct {
	*lifetime

	settings *environment.Settings
	registry *prometheus.Registry
	server   *embedded.Server // nil if the server is external
	room     int64            // bytes that all streams might take together at the start; 0: unknown
	denied   connect.Denials
	nc       *nats.Conn
	// natsURL and natsOptions are for further connections as the same user as nc.
	natsURL     string
	natsOptions []nats.Option
	// replyPrefix is the subject prefix of replies to producers that have a separate account; "" if there is no such
	// account.
	replyPrefix string
	js          jetstream.JetStream
	control     jetstream.KeyValue
}

// records are what the worker stores in addition to jobs: notes of the ledger and of the limits, the flight recorder,
// and the notes by which it recognizes a restored store.
type records struct {
	*link

	unread   []string // keys of control whose values were damaged
	streams  *streamwatch.Watch
	copies   *streamwatch.CopyWatch
	redis    *limitstate.Redis  // nil if limits are counted in the process
	recorder *recorder.Recorder // nil if there is no flight recorder
	witness  *restoreguard.Keeper
	restored *dispatcher.Restoration // nil: the store is as weir left it
}

// notices posts events to their destinations, and ends of jobs to the callbacks of their apis.
type notices struct {
	*link

	follower *follower
	senders  *webhook.Senders
}

// bodies bounds the memory for the bodies of jobs.
type bodies struct {
	*link

	holdings *queue.Holdings // bound the memory of all apis together
}

// Worker is one running weir: everything that `weir serve` runs in one process.
type Worker struct {
	*link
	*records
	*notices
	*bodies
	*traces
	*accounts

	config *config.Config // the configuration at the start; follower has the one in force
	past   []pastConfig   // the configurations before config, the newest first
	clock  *clock.Clock

	letters  *deadletter.Writer
	opened   []*apiParts // the apis at the start
	dispatch *dispatcher.Dispatcher
	dedupe   *queue.Dedupe
	levels   limitstate.Levels // of the shared limits of all apis
	guard    *diskGuard
	foreign  *foreign.Watch
	pauses   *admin.Pauses
	shares   *lease.Registry                // set if this replica shares partitions on an external server
	taking   atomic.Pointer[ingest.Service] // the intake, for other goroutines
	http     *console.Server
	reloads  chan func() // requests for a reload: each function is called after its reload
}

// traces sends the spans of jobs.
type traces struct {
	*link

	spans *otlp.Sender // nil if no spans are sent
}

func newWorker(l *link) *Worker {
	return &Worker{
		link: l, records: &records{link: l}, notices: &notices{link: l}, bodies: &bodies{link: l}, traces: &traces{link: l},
		accounts: &accounts{link: l},
	}
}

// Start starts a worker and returns when jobs are accepted and dispatched. If it fails, it leaves nothing running; to
// stop calls that already run may take until the shutdown timeout has passed.
//
// Start is one straight line, because nearly every step needs the result of an earlier one.
func Start(ctx context.Context, s *environment.Settings, log *slog.Logger) (started *Worker, err error) {
	return StartAt(ctx, s, log, clock.New())
}

// StartAt is Start with the given clock.
func StartAt(ctx context.Context, s *environment.Settings, log *slog.Logger, c *clock.Clock) (started *Worker, err error) {
	w := newWorker(&link{settings: s, registry: newRegistry()})
	w.clock, w.reloads = c, make(chan func(), 1)
	defer func() {
		w.denied.Tell(nil)
		if err != nil {
			err = errors.Join(w.denied.Explain(connect.ExplainStreams(foreign.ExplainOverlap(w.js, err))), w.undo())
		}
	}()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	w.denied.Tell(giveUp) // a denied right ends the start at once, instead of after a timeout
	w.lifetime = newLifetime(ctx, s.ShutdownTimeout, log)

	// Steps that can refuse the start come before the first change that other processes see, and before the first call.
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
	w.openTraces(ctx)
	if err := w.connect(ctx, file); err != nil {
		return nil, err
	}
	if err := w.refuseForeign(ctx); err != nil {
		return nil, err
	}
	if err := w.mendControl(ctx); err != nil {
		return nil, err
	}
	if w.control, err = admin.EnsureControl(ctx, w.js, s.Replicas); err != nil {
		return nil, err
	}
	store, err := admin.EnsureConfigStore(ctx, w.js, s.Replicas)
	if err != nil {
		return nil, err
	}
	adopted, err := adopt(ctx, store, file, s.Site)
	if err != nil {
		return nil, err
	}
	adopted.tellOverruled(file, log)
	adopted.tellProfiles(log)
	adopted.tellUnits(log)
	w.config = adopted.present.Config
	if w.past, err = adopted.past(ctx); err != nil {
		return nil, err
	}
	if err := s.Guarded(w.config); err != nil {
		return nil, cli.Usage(err)
	}
	if w.dedupe, err = adopted.dedupe(ctx); err != nil {
		return nil, err
	}
	scope := secret.NewScope(s.Secrets, file.configured().References())
	if err := refuseUnsupported(w.config, scope); err != nil {
		return nil, err
	}
	if w.server == nil {
		if err := connect.FitsPayload(w.config, w.nc); err != nil {
			return nil, err
		}
	}
	if w.redis, err = limitstate.DialRedis(ctx, s, w.registry, log); err != nil {
		return nil, err
	}
	if w.redis != nil {
		w.onStop("redis connection", w.redis.Close)
	}
	if err := w.refuseRestored(ctx, w.config); err != nil {
		return nil, err
	}
	w.openRecorder()
	w.watchStreams()
	w.noteUnread()
	if err := w.share(ctx); err != nil {
		return nil, err
	}
	if err := w.open(ctx, adopted.former); err != nil {
		return nil, err
	}
	if err := w.putInForce(ctx, adopted); err != nil {
		return nil, err
	}
	w.lowerGo(func() error { return w.letters.Run(w.base) })
	w.runAccounts()
	for _, a := range w.opened {
		w.runAPI(a)
	}
	w.guard = newDiskGuard(w.js, w.room, w.server != nil, s.Replicas, w.log)
	w.registry.MustRegister(&storeMetrics{js: w.js, guard: w.guard, copies: w.copies})
	w.follower = newFollower(followerOptions{
		nc: w.nc, js: w.js, store: store, host: w, dispatch: w.dispatch, dedupe: w.dedupe, guard: w.guard, inbox: w.settings.NATSInbox,
		guarded: s.Guarded, site: s.Site,
		log: w.log,
	}, scope, w.opened, adopted.present)
	if w.dispatch != nil {
		w.upper = &errgroup.Group{}
		w.upper.Go(func() error { return w.dispatch.Run(w.soft, w.hard) })
		w.lowerGo(func() error { return w.pauses.Run(w.soft) })
		w.lowerGo(func() error { return w.limits.Ledger.Run(w.soft) })
	}
	// The follower comes first: a lease begins only after it has considered the newest version.
	w.lowerGo(func() error { return w.follower.run(w.soft) })
	if w.server != nil {
		w.lowerGo(func() error { return w.server.AwaitFrozen(w.soft) })
	} else {
		w.lowerGo(func() error { return migrate.Watch(w.soft, w.nc) })
		watch := nodeWatch{nc: w.nc, js: w.js, silent: nodeSilent, log: log}
		w.lowerGo(func() error { return watch.run(w.soft) })
		w.lowerGo(func() error { return w.copies.Run(w.soft) })
	}
	w.onStop("dispatch and storage", w.wait)
	if w.dispatch != nil {
		if err := w.awaitDispatch(ctx); err != nil {
			return nil, err
		}
		w.awaitAccounts(ctx, w.opened)
	}
	w.guard.look(ctx)
	w.lowerGo(func() error { return w.guard.run(w.base) })
	w.lowerGo(func() error { return w.foreign.Run(w.soft) })
	w.lowerGo(func() error { return w.streams.Run(w.soft) })
	w.lowerGo(func() error { return w.witness.Run(w.soft) })
	w.lowerGo(func() error { return w.watchMemory(w.base) })
	w.lowerGo(func() error { w.clock.Watch(w.base, w.log); return nil })
	w.workRedrives(ctx)
	w.senders = w.makeSenders()
	if err := w.answerOperators(); err != nil {
		return nil, err
	}
	if err := w.answerHTTP(); err != nil {
		return nil, err
	}
	if err := w.takeJobs(); err != nil {
		return nil, err
	}
	tellLeftovers(ctx, w.js, w.config, w.log, func(string) string { return leftAtStart })
	w.lowerGo(func() error { return w.reloading(w.soft) })
	w.post()
	w.openDoor()
	w.serveHTTP()
	go w.watch()
	return w, nil
}

// Config returns the configuration that the worker started with.
func (w *Worker) Config() *config.Config { return w.config }

// ConfigState returns the newest version of the configuration that the worker has considered, and the version in force.
// It is safe for concurrent use.
func (w *Worker) ConfigState() admin.ConfigState { return w.follower.state() }

// Parts are the parts of a running worker, for tests of a whole weir. Tests may query the parts but must not close
// them.
type Parts struct {
	Dispatcher *dispatcher.Dispatcher // nil if the worker does not dispatch
	Queues     []*queue.Queue         // of the apis at the start
	Levels     *limitstate.Levels
	Foreign    *foreign.Watch
	Denied     *connect.Denials // what the server refused
	Routes     []console.Route  // the routes over HTTP
}

// Parts returns the worker's parts.
func (w *Worker) Parts() Parts {
	p := Parts{Dispatcher: w.dispatch, Levels: &w.levels, Foreign: w.foreign, Denied: &w.denied}
	if w.http != nil {
		p.Routes = w.http.Routes()
	}
	for _, a := range w.opened {
		p.Queues = append(p.Queues, a.queue)
	}
	return p
}

// NATSURL returns the address that producers connect to.
func (w *link) NATSURL() string {
	if w.server != nil {
		return w.server.ClientURL()
	}
	return w.nc.ConnectedUrl()
}

// HTTPAddr returns the address of the HTTP server, "" if there is none.
func (w *Worker) HTTPAddr() string {
	if w.http == nil {
		return ""
	}
	return w.http.Addr()
}
