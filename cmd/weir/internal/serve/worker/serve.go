package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/httpd/httpapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/flowsamples"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/otlp"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/retell"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// awaitDispatch blocks until the dispatcher has read the queues. It returns an error if the dispatcher fails or ends
// before that.
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

// answerOperators starts the service that answers the requests of operators.
func (w *Worker) answerOperators() error {
	if w.dispatch == nil {
		return nil
	}
	index, err := w.keepIndex()
	if err != nil {
		return err
	}
	stop, err := admin.StartService(admin.ServiceOptions{
		Conn: w.nc, Dispatcher: w.dispatch, Limits: w.levels.Shown, Refresh: w.levels.Refresh, Clock: w.levels.ClockProblem, Ledger: w.limits.Ledger.Problem, Throttled: w.throttled, History: w.keepHistory(), Index: index, Config: w.follower.state, ShareUse: w.shareUse, InForce: w.follower.inForce.Load, Instance: w.settings.Instance,
		Ready: w.Ready, Streams: w.streams.Changes, Lacking: w.copies.Lacking, Roles: w.roles(), Callback: w.callbackLag, Posting: w.posting, Notify: w.tryReceivers, Log: w.log.With("component", "operators"),
	})
	if err == nil {
		w.onStop("operators' service", stop)
	}
	return err
}

// shareUse fills in what this process knows of its use of an account. The account need not be configured any more,
// because calls of a removed api go on until a restart.
func (w *Worker) shareUse(ctx context.Context, account string, state *admin.ConfigState) {
	c := w.follower.inForce.Load()
	use := w.limits.Pools.ShareUse(ctx, account, func(api string) bool { _, has := c.API(api); return has }, w.clock)
	if use.Counts {
		state.Shares = map[string]int64{account: use.Share}
	}
	if use.Busy != "" {
		state.Busy = map[string]string{account: use.Busy}
	}
}

// Bounds of the history that the console draws: the last 15 minutes in steps of 5 seconds, for each api and for its
// deepest buckets. A bucket's history takes 7 KB, so the whole history takes 2 MB at most.
const (
	historySpan  = 15 * time.Minute
	historyEvery = 5 * time.Second
	historyKeys  = 30
	historyLines = 256
)

// keepHistory starts to record the flow into and out of apis and their deepest buckets.
func (w *Worker) keepHistory() *flowsamples.Keeper {
	k := flowsamples.New(flowsamples.Options{
		Source: w.dispatch.Desk, Throttled: w.throttled, Span: historySpan, Every: historyEvery, Keys: historyKeys, Lines: historyLines,
	})
	w.lowerGo(func() error { return k.Run(w.soft) })
	return k
}

// throttled returns how many jobs of an api this process's intake has refused since it started.
func (w *Worker) throttled(api string) uint64 {
	if intake := w.taking.Load(); intake != nil {
		return intake.Throttled(api)
	}
	return 0
}

func (w *link) roles() (names []string) {
	for _, r := range w.settings.Roles {
		names = append(names, string(r))
	}
	return names
}

// workRedrives starts to run the redrives that are stored in NATS. It does nothing if this replica's NATS user may not
// submit letters; redrives then wait for another replica.
func (w *Worker) workRedrives(ctx context.Context) {
	if w.dispatch == nil {
		return
	}
	if w.server == nil && !connect.MayPublish(ctx, w.nc, &w.denied, ingest.RedrivePrefix+">") {
		w.log.Warn("this replica runs no redrives: its NATS user may not publish to " + ingest.RedrivePrefix + ">: give it the role worker of deploy/nats")
		return
	}
	tasks := deadletter.NewTaskWorker(deadletter.TaskWorkerOptions{
		Conn: w.nc, JetStream: w.js, Control: w.control, Terms: w.dispatch.RedriveTerms, Calls: w.dispatch.CallsSince, Instance: w.settings.Instance,
		Log: w.log,
	})
	w.lowerGo(func() error { return tasks.Run(w.soft) })
}

// takeJobs starts the intake.
func (w *Worker) takeJobs() error {
	if !w.settings.Has(environment.RoleIngest) {
		return nil
	}
	if w.server == nil { // the embedded server's memory of ids ends with this process
		ends := ledger.Follower{JetStream: w.js, Dedupe: w.dedupe, Tell: w.follower.recall, Log: w.log}
		w.lowerGo(func() error { return ends.Run(w.soft) })
	}
	again := retell.New(retell.Options{JetStream: w.js, Reply: w.letters.Reply, Notes: w.control, Log: w.log})
	w.lowerGo(func() error { return again.Run(w.base) }) // the intake still tells of duplicates after the end of soft
	var err error
	w.intake, err = ingest.Start(ingest.Options{
		Conn: w.nc, Version: cli.Version(), APIs: w.follower.intake,
		Bury: w.letters.BuryRefused, MaxWaiting: w.holdings.IntakeBytes(), Log: w.log, Registerer: w.registry,
		Answered: w.traceAnswers(), Again: func(j *ingest.Job, r ingest.Receipt) {
			again.Tell(retell.Duplicate{API: j.API, Key: j.Key, Job: j.ID, ReplyTo: j.ReplyTo, Stream: r.Stream, Seq: r.Seq})
		},
	})
	if err != nil {
		return err
	}
	w.taking.Store(w.intake)
	// Until the flush the server may not know the intake's subscriptions.
	if err := w.nc.FlushTimeout(connect.Timeout); err != nil {
		return fmt.Errorf("start the intake: %w", err)
	}
	return nil
}

// listenHTTP listens on the HTTP address, if one is configured. serveHTTP begins to answer.
func (w *Worker) listenHTTP() (err error) {
	if w.settings.HTTPListen == "" {
		return nil
	}
	w.http, err = console.Listen(console.Options{
		Listen: w.settings.HTTPListen, Token: w.settings.HTTPToken.Reveal(), Gatherer: w.registry, Version: cli.Version(), Ready: w.Ready, Alive: w.Alive, Remarks: w.remarks,
		Connections: visitors(w.settings), HeaderBytes: softMemory(w.settings.Memory) / 48, Log: w.log.With("component", "http"),
		Named: w.configuredHTTP, Auth: w.httpAuth(),
	})
	if err == nil {
		w.onStop("http listener", w.http.Close)
	}
	return err
}

// httpAuth returns which users the HTTP server admits on a loopback address if there is no token. An external NATS
// server authenticates its clients itself. With such a server the setting for NATS does not apply to HTTP, except
// AuthOpen.
func (w *link) httpAuth() environment.NATSAuth {
	if auth := w.settings.NATSAuth; w.settings.Embedded() || auth == environment.AuthOpen {
		return auth
	}
	return environment.AuthOperators
}

// answerHTTP adds the routes of the HTTP API. The API has a NATS connection of its own, so that its reading does not
// delay calls.
func (w *Worker) answerHTTP() error {
	if w.http == nil {
		return nil
	}
	denied := &connect.Denials{}
	nc, js, err := w.connectAside("http", denied)
	if err != nil {
		return err
	}
	at := w.settings.NATSURL.String()
	if w.server != nil {
		at = w.server.ClientURL()
	}
	asked := httpapi.New(httpapi.Options{
		Connection: &connect.Connection{Conn: nc, JetStream: js, At: at, Denied: denied},
		Config:     w.follower.inForce.Load, Scope: w.follower.scope.Load,
		Terms: func() func(string) (deadletter.Terms, bool) { return RedriveTerms(w.follower.inForce.Load()) }, Settings: w.settings, Log: w.log.With("component", "api"),
	})
	w.onStop("api", asked.Close)
	w.http.Add(asked.Routes()...)
	return nil
}

// connectAside opens another NATS connection for a part that reads much, so that the part's reading does not delay
// calls.
func (w *link) connectAside(part string, denied *connect.Denials) (*nats.Conn, jetstream.JetStream, error) {
	opts := append(slices.Clone(w.natsOptions), nats.Name("weir "+w.settings.Instance+" "+part), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !denied.Note(err) {
			w.log.Warn("nats", "component", part, "err", err)
		}
	}))
	nc, err := nats.Connect(w.natsURL, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect the %s side: %w", part, err)
	}
	w.onStop("nats connection of the "+part+" side", w.keepOpen(nc, "the connection of the "+part+" side"))
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(connect.RequestTimeout))
	if err != nil {
		return nil, nil, fmt.Errorf("JetStream: %w", err)
	}
	return nc, stream.FromLeader(js), nil
}

// Bounds of the index of ended jobs, and of its sums of spending. Each is a part of the heap (one sixteenth, one
// thirty-second), and at most a number of bytes. 256 MiB hold two and a half million jobs.
const (
	indexShare = 16
	mostIndex  = 256 << 20
	sumsShare  = 32
	mostSums   = 64 << 20
)

// keepIndex starts to build the index of ended jobs.
func (w *link) keepIndex() (*jobindex.Index, error) {
	_, js, err := w.connectAside("index", &connect.Denials{})
	if err != nil {
		return nil, err
	}
	x := jobindex.New(jobindex.Options{
		JetStream: js, Bytes: int(min(softMemory(w.settings.Memory)/indexShare, mostIndex)), SumBytes: int(min(softMemory(w.settings.Memory)/sumsShare, mostSums)), Log: w.log.With("component", "index"),
	})
	w.lowerGo(func() error { return x.Run(w.soft) })
	return x, nil
}

// remarks returns, for operators, the problems of a weir that is ready: changes that were made by hand to weir's
// streams in the last hour, and calls that wait because their limits do not answer or refuse them. remarks must not be
// called before weir serves.
func (w *Worker) remarks() (remarks []string) {
	if w.dispatch != nil {
		down := w.dispatch.LimitersDown()
		for _, api := range slices.Sorted(maps.Keys(down)) {
			why := "calls hold until " + w.limiter() + " answers"
			if refusal := down[api]; refusal != nil {
				why = refusal.Err.Error()
			}
			remarks = append(remarks, "api "+api+": "+why)
		}
	}
	for _, c := range w.streams.Changes() {
		remarks = append(remarks, c.Stream+": "+c.What)
	}
	return remarks
}

// limiter returns the name of the store that counts limits, for messages.
func (w *records) limiter() string {
	if w.redis != nil {
		return w.redis.String()
	}
	return "the store of its limits"
}

// configuredHTTP returns the HTTP section of the configuration in force. It must not be called before the follower has
// a configuration.
func (w *Worker) configuredHTTP() *config.HTTP { return &w.follower.inForce.Load().HTTP }

// serveHTTP begins to answer over HTTP.
func (w *Worker) serveHTTP() {
	if w.http == nil {
		return
	}
	w.http.Serve()
	w.onStop("http", w.http.Close) // the HTTP server must stop before the parts that it asks
	w.log.Log(w.base, levelAlways, "listening", "what", "http", "addr", w.http.Addr())
}

// Ready returns nil if weir could accept and dispatch a job now. It makes a write that the store must acknowledge,
// because a ping would not show that the store works.
func (w *Worker) Ready(ctx context.Context) error {
	if w.soft.Err() != nil {
		return errStopped
	}
	if err := w.streams.Err(); err != nil {
		return err
	}
	if w.dispatch != nil {
		if err := w.dispatch.Ready(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(w.guard.err(), w.foreign.Err()); err != nil {
		return err
	}
	// All replicas write one key, because keys of instances that never start again would stay.
	if _, err := w.control.Put(ctx, "canary", []byte(time.Now().UTC().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("JetStream does not store: %w", err)
	}
	return nil
}

// openTraces starts to send traces, if the environment asks for traces.
func (w *traces) openTraces(ctx context.Context) {
	w.spans = otlp.Open(ctx, otlp.Options{Version: cli.Version(), Instance: w.settings.Instance, Log: w.log, Registerer: w.registry})
	if w.spans != nil {
		w.onStop("traces", w.spans.Close) // the sender must stop after the parts that write spans
	}
}

// traceAnswers returns the function that writes the intake's spans; nil if no traces are sent.
func (w *traces) traceAnswers() func(*ingest.Answered) {
	if t := w.spans.Tracer(); t != nil {
		return t.Answered
	}
	return nil
}

// newRegistry returns the registry in which every part registers its metrics.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": cli.Version()},
	})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}
