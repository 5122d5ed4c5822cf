package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/foreign"
	"weir/dispatcher"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// follower keeps a running worker to the configuration in NATS. A new version is checked first, then all that can fail is done, and
// only then does anything change. A version that is not valid changes nothing. Only run writes its fields; what is atomic may be
// read from any goroutine.
//
// An api that is taken out is refused at the intake from then on; its worker goes on with its last configuration, so that
// the jobs in its queue still end. After a restart they wait there until the api is configured again.
type follower struct {
	followerOptions

	seen    atomic.Uint64 // the newest version that was looked at
	version atomic.Uint64 // in force
	refused atomic.Pointer[refusedConfig]
	config  *config.Config // in force
	queues  map[string]*queue.Queue
	apis    atomic.Pointer[map[string]*ingest.API] // that take jobs
	takers  atomic.Pointer[map[string]*queue.Queue]
	scope   atomic.Pointer[config.SecretScope] // of what comes over NATS
	inForce atomic.Pointer[config.Config]      // config, for others
}

// Bounds of following.
const (
	followTimeout = 30 * time.Second // to put one version in force
	followRetry   = 2 * time.Second  // until a version is tried again that NATS did not let us put in force
)

// followerOptions are what a follower puts a configuration in force with.
type followerOptions struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	store    control.ConfigStore
	host     apiHost
	dispatch *dispatcher.Dispatcher // nil where this one does not dispatch
	dedupe   *queue.Dedupe
	guard    *diskGuard
	inbox    string                     // prefix of this weir's own inboxes
	guarded  func(*config.Config) error // refuses one under which others could use the HTTP side without being asked who they are
	log      *slog.Logger
}

// apiHost opens the apis of a configuration and runs them, and keeps the streams that they share.
type apiHost interface {
	ensureStreams(ctx context.Context, from, to *config.Config) error
	openAPI(ctx context.Context, a *config.API, c *config.Config) (*apiParts, error)
	runAPI(a *apiParts)
	queueSettings(a *config.API, c *config.Config) queue.Settings
}

func newFollower(o followerOptions, scope *config.SecretScope, opened []*apiParts, present *control.Version) *follower {
	o.log = o.log.With("component", "config")
	f := &follower{followerOptions: o, config: present.Config, queues: map[string]*queue.Queue{}}
	f.scope.Store(scope)
	f.inForce.Store(present.Config)
	f.seen.Store(present.Number)
	f.version.Store(present.Number)
	for _, a := range opened {
		f.queues[a.name] = a.queue
	}
	f.takeJobsOf(present.Config)
	return f
}

// intake returns the apis that take jobs now.
func (f *follower) intake() map[string]*ingest.API { return *f.apis.Load() }

func (f *follower) takeJobsOf(c *config.Config) {
	apis := map[string]*ingest.API{}
	for i := range c.APIs {
		a := &c.APIs[i]
		rule := ingestRule(a, c)
		rule.ReplyTo.Inbox = f.inbox
		apis[a.Name] = &ingest.API{Rule: rule, Queue: f.guard.before(f.queues[a.Name])}
	}
	f.apis.Store(&apis)
	takers := maps.Clone(f.queues)
	f.takers.Store(&takers)
}

// recall lets a queue know a job that has ended, here or in another replica.
func (f *follower) recall(api string, job queue.Finished) {
	if q := (*f.takers.Load())[api]; q != nil {
		q.AddFinished([]queue.Finished{job})
	}
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := f.watch(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("the configuration cannot be watched; trying again", "err", err)
			stream.Sleep(ctx, followRetry)
		}
	}
	return nil
}

// watch puts every version in force that comes, until ctx ends or the watch breaks.
func (f *follower) watch(ctx context.Context) error {
	watcher, err := f.store.Watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // it has ended with ctx, or is of no more use
	for {
		select {
		case entry, open := <-watcher.Updates():
			if !open {
				return errors.New("the watch of the configuration has ended")
			}
			if entry == nil || entry.Revision() <= f.seen.Load() {
				continue // what was there is read, or it is in force already
			}
			if err := f.take(ctx, entry); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// take puts one version in force, or says in the log why not. The error is one that another try may not meet.
func (f *follower) take(ctx context.Context, entry jetstream.KeyValueEntry) error {
	v, err := control.ReadVersion(entry)
	if err == nil {
		f.dedupe.Changing(v.Config.Dedupe, entry.Created()) // others may follow it, whatever this one does
		err = f.check(v.Config, f.scope.Load())
	}
	if err != nil {
		f.log.Error("a new configuration is not valid here; the former one stays in force", "version", entry.Revision(), "err", err)
		f.refused.Store(&refusedConfig{entry.Revision(), err.Error()})
		f.seen.Store(entry.Revision())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	changes := f.config.Diff(v.Config)
	if err := f.apply(ctx, v.Config, changes); err != nil {
		return fmt.Errorf("put version %d in force: %w", v.Number, connect.ExplainStreams(foreign.ExplainOverlap(f.js, err)))
	}
	dedupeChanged(ctx, f.js, f.dedupe, f.log)
	f.config = v.Config
	f.inForce.Store(v.Config)
	f.seen.Store(v.Number)
	f.version.Store(v.Number)
	LogWarnings(f.log, v.Config.File, v.Config.Warnings)
	f.log.Info("configuration applied", "version", v.Number, "who", v.Who, "from", v.From, "changes", len(changes))
	tellLeftovers(ctx, f.js, v.Config, leftRunning, f.log)
	return nil
}

// check says why this worker cannot run by a configuration, whose references scope bounds.
func (f *follower) check(c *config.Config, scope *config.SecretScope) error {
	if err := refuseUnsupported(c, scope); err != nil {
		return err
	}
	if f.guarded != nil {
		if err := f.guarded(c); err != nil {
			return err
		}
	}
	rules := map[string]bucket.Rules{}
	for i := range c.APIs {
		a := &c.APIs[i]
		rules[a.Name] = DispatchAPI(a, c).Rules
		if err := rules[a.Name].Validate(); err != nil {
			return fmt.Errorf("api %s: %w", a.Name, err)
		}
	}
	if err := connect.FitsPayload(c, f.nc); err != nil {
		return fmt.Errorf("%w; or restart weir, if the server is its own", err)
	}
	if f.dispatch == nil {
		return nil
	}
	return f.dispatch.CheckShared(rules)
}

// apply changes the running worker. What can fail comes first; whatever has been done of it when something fails only
// lets more in than the former configuration asks for, and every step can be done again.
func (f *follower) apply(ctx context.Context, next *config.Config, changes []config.Change) error {
	if err := f.host.ensureStreams(ctx, f.config, next); err != nil {
		return err
	}
	var added []*apiParts
	var changed []*config.API
	for i := range next.APIs {
		a := &next.APIs[i]
		q, known := f.queues[a.Name]
		switch {
		case !known:
			opened, err := f.host.openAPI(ctx, a, next)
			if err != nil {
				return err
			}
			added = append(added, opened)
		case config.Concerns(changes, a.Name):
			if err := q.Raise(ctx, f.host.queueSettings(a, next)); err != nil {
				return fmt.Errorf("api %s: %w", a.Name, err)
			}
			changed = append(changed, a)
		}
	}
	for _, a := range added {
		if err := f.start(ctx, a); err != nil {
			return err
		}
	}
	for _, a := range changed {
		if err := f.change(ctx, a, next); err != nil {
			return err
		}
	}
	f.takeJobsOf(next)
	return nil
}

func (f *follower) start(ctx context.Context, a *apiParts) error {
	f.host.runAPI(a)
	f.queues[a.name] = a.queue
	if f.dispatch == nil {
		return nil
	}
	return f.dispatch.StartAPI(ctx, a.dispatch)
}

func (f *follower) change(ctx context.Context, a *config.API, next *config.Config) error {
	api := DispatchAPI(a, next)
	if err := f.queues[a.Name].SetRules(api.Rules); err != nil {
		return fmt.Errorf("api %s: %w", a.Name, err)
	}
	if f.dispatch == nil {
		return nil
	}
	return f.dispatch.Apply(ctx, api)
}

// tellConfig tells that this worker has applied its file.
func (w *Worker) tellConfig(ctx context.Context, change control.ConfigChange) {
	w.log.Info("configuration applied", "version", change.NewVersion, "who", change.Who, "from", change.From, "changes", change.Changes)
	if err := change.Event().Publish(ctx, w.js); err != nil {
		w.log.Warn("an event could not be stored", "err", err)
	}
}

// refuseUnsupported refuses to call an api when that would break a limit or lack a secret: calls without a limit that
// was asked for are worse than no calls.
func refuseUnsupported(c *config.Config, scope *config.SecretScope) error {
	var errs []error
	for _, p := range c.MissingSecrets(scope) {
		errs = append(errs, errors.New(p.In(c.File)))
	}
	if len(errs) == 0 {
		return nil
	}
	return cli.Usage(errors.Join(errs...))
}

// What is told of jobs that are left of an api which is not configured: at a start, and when the api is taken out of a weir that runs.
const (
	leftAtStart = "jobs wait of an api that is not configured: configure it again to have them called"
	leftRunning = "jobs are left of an api that is not configured: they are called until weir restarts, and wait then until the api is configured again"
)

// tellLeftovers warns of jobs that wait for an api which is not configured.
func tellLeftovers(ctx context.Context, js jetstream.JetStream, c *config.Config, what string, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	found, err := control.JobsLeft(ctx, js, c)
	if err != nil {
		log.Warn("it is not known whether jobs wait of apis that are not configured", "err", err)
		return
	}
	for _, api := range slices.Sorted(maps.Keys(found)) {
		log.Warn(what, "api", api, "jobs", found[api])
	}
}

// refusedConfig is a version that a follower cannot put in force, and why.
type refusedConfig struct {
	version uint64
	why     string
}

// state is what operators are told: which replica says so is put in by who answers. It is safe to ask for from any goroutine.
func (f *follower) state() control.ConfigState {
	s := control.ConfigState{Seen: f.seen.Load(), Version: f.version.Load()}
	if r := f.refused.Load(); r != nil && r.version == s.Seen {
		s.Why = r.why
	}
	return s
}
