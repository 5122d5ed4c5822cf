package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/httpd/webhook"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
)

// open creates missing streams and opens the parts that need them. The streams that all apis share keep the sizes and
// ages of former, the configuration in force before.
func (w *Worker) open(ctx context.Context, former *config.Config) (err error) {
	if w.letters, err = deadletter.Open(ctx, w.letterOptions(former)); err != nil {
		return err
	}
	if w.settings.Has(environment.RoleDispatch) {
		opts := w.dispatchOptions(w.config)
		opts.ResultsAge = former.Results.MaxAge
		if opts.FirstSeq, err = w.findLedger(ctx); err != nil {
			return err
		}
		if w.dispatch, err = dispatcher.Open(ctx, opts); err != nil {
			return err
		}
		if err := w.noteLedger(ctx); err != nil {
			return err
		}
		if w.pauses, err = admin.OpenPauses(ctx, w.base, w.js, w.control, w.dispatch, w.log); err != nil {
			return err
		}
		w.registry.MustRegister(&w.levels)
		w.limits = &limitstate.Options{
			Conn: w.nc, JetStream: w.js, Control: w.control, Letters: w.letters, Caller: w.dispatch, Clock: w.clock, Redis: w.redis, Levels: &w.levels, Pools: &limitstate.Pools{}, Began: w.clock.Now(),
			Recorder: w.recorder, Instance: w.settings.Instance, Unsynced: w.server != nil && w.settings.Durability != environment.DurabilityAlways, Log: w.log,
		}
		if w.limits.Ledger, err = limitstate.OpenLedgerWatch(ctx, w.limits); err != nil {
			return err
		}
	}
	if err := w.forgetAccounts(ctx, w.config); err != nil {
		return err
	}
	if err := w.openAccounts(ctx, w.config); err != nil {
		return err
	}
	w.first = slices.Clone(w.fresh)
	for i := range w.config.APIs {
		a, err := w.openAPI(ctx, &w.config.APIs[i], w.config)
		if err != nil {
			return err
		}
		w.opened = append(w.opened, a)
		if w.dispatch != nil {
			w.dispatch.AddAPI(a.dispatch)
		}
	}
	if err := w.fitsMemory(); err != nil {
		return err
	}
	return w.rememberMoved(ctx)
}

// putInForce stores the adopted configuration and adapts the shared streams to it. It is the last step before calls
// begin.
func (w *Worker) putInForce(ctx context.Context, a *adoption) error {
	told, err := a.store(ctx)
	if err != nil {
		return err
	}
	dedupeChanged(ctx, w.js, w.dedupe, w.log)
	if told != nil {
		w.tellConfig(ctx, *told)
	}
	if err := w.ensureStreams(ctx, a.former, w.config); err != nil {
		return err
	}
	return w.beginCallbacks(ctx, w.config, a.present.Number)
}

// beginCallbacks stores from which end on each new callback of a configuration posts. It must run before the first call
// under that configuration.
func (w *Worker) beginCallbacks(ctx context.Context, c *config.Config, version uint64) error {
	return webhook.Begin(ctx, w.js, w.control, c, version)
}

// ensureStreams changes the ages and sizes of the shared streams if they differ between the two configurations.
func (w *Worker) ensureStreams(ctx context.Context, from, to *config.Config) error {
	if to.DeadLetters != from.DeadLetters {
		if err := deadletter.EnsureStreams(ctx, w.letterOptions(to)); err != nil {
			return err
		}
	}
	if to.Results.MaxAge != from.Results.MaxAge && w.dispatch != nil {
		return dispatcher.EnsureStreams(ctx, w.dispatchOptions(to))
	}
	return nil
}

func (w *Worker) letterOptions(c *config.Config) deadletter.Options {
	return deadletter.Options{
		Conn: w.nc, JetStream: w.js, Replicas: w.settings.Replicas, MaxAge: c.DeadLetters.MaxAge, MaxBytes: c.DeadLetters.MaxBytes,
		MaxStore: 2 * w.maxStore(), MaxWaiting: w.holdings.IntakeBytes(), Dedupe: w.dedupe.Length, ReplyPrefix: w.replyPrefix,
		Log: w.log, Registerer: w.registry,
	}
}

func (w *Worker) dispatchOptions(c *config.Config) dispatcher.Options {
	return dispatcher.Options{
		Conn: w.nc, JetStream: w.js, Letters: w.letters, Control: w.control, Instance: w.settings.Instance, Version: cli.Version(), Now: w.clock.Now, Ahead: w.clock.Ahead,
		Replicas: w.settings.Replicas, Dedupe: w.dedupe, ResultsAge: c.Results.MaxAge, LedgerAge: ledgerAge, MaxStore: w.maxStore(), Restored: w.restored,
		Changed: w.streams.Note, Recorder: w.recorder, Tracer: w.spans.Tracer(), Registry: w.shares, MayBegin: w.mayBegin, SharedBy: w.sharedBy(), Log: w.log, Registerer: w.registry,
	}
}

// maxStore returns the most bytes of the store that one stream may reserve, 0 for no bound. The stream of letters may
// reserve twice as much; the queues use the rest.
func (w *link) maxStore() int64 {
	return w.room / 8
}

// share opens the registry of replicas on an external server, and blocks until this replica may dispatch beside the
// other replicas. On the embedded server no other replica dispatches, and the registry stays empty. There share makes
// this weir known to commands.
func (w *Worker) share(ctx context.Context) error {
	if !w.settings.Has(environment.RoleDispatch) {
		return nil
	}
	shares, err := lease.OpenRegistry(ctx, w.js, w.settings.Replicas)
	if err != nil {
		return err
	}
	if w.server != nil {
		stop, err := admin.StandAlone(w.nc)
		if err == nil {
			w.onStop("operators' sign of this weir", stop)
		}
		return err
	}
	shares.Show(w.recorder)
	w.shares = shares
	rules := map[string]bucket.Rules{}
	for i := range w.config.APIs {
		rules[w.config.APIs[i].Name] = w.config.APIs[i].Rules
	}
	return ownership.AwaitNoRival(ctx, w.shares, w.sharedBy(), rules)
}

// openRecorder opens the flight recorder, if a directory for it is configured. It never refuses a start, because
// without a recorder the only loss is that more jobs have an unknown outcome after a kill -9.
func (w *records) openRecorder() {
	switch {
	case !w.settings.Has(environment.RoleDispatch):
		return
	case w.settings.StateDir == "":
		w.log.Info("no flight recorder is kept: after a kill -9 every call that had an intent and no outcome is unknown; set WEIR_STATE_DIR to a directory on a local disk")
		return
	}
	r, err := recorder.Open(recorder.Options{Dir: w.settings.StateDir, Log: w.log})
	if err != nil {
		w.log.Warn("cannot open the flight recorder: after a kill -9 every call with an intent and no outcome is unknown", "path", w.settings.StateDir, "err", err)
		return
	}
	w.recorder = r
	w.onStop("flight recorder", r.Close)
}

// sharedBy returns which store counts this replica's shared limits, for comparison with other replicas.
func (w *records) sharedBy() string {
	if w.redis != nil {
		return sharedByRedis
	}
	return ""
}

// sharedByRedis is the value of sharedBy if Redis counts the limits.
const sharedByRedis = "redis"

// ledgerAge is how long call records are kept: long enough to check a monthly invoice against them.
const ledgerAge = 62 * 24 * time.Hour

// mayBegin runs when a lease has begun, before any call under the lease. While this replica was stopped or cut off, the
// other replicas may have put pauses and configurations in force. mayBegin blocks until this replica has put them in
// force too.
func (w *Worker) mayBegin(ctx context.Context) error {
	if err := migrate.CheckStillHere(ctx, w.nc); err != nil {
		return err
	}
	if err := w.pauses.AwaitApplied(ctx); err != nil {
		return fmt.Errorf("the pauses: %w", err)
	}
	if err := admin.AwaitConfigApplied(ctx, w.nc, w.follower.seen.Load); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	return w.follower.mayCall()
}
