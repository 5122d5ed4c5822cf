package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// follower puts the versions of the configuration in NATS in force in a running worker. It first checks a new version,
// then does everything that can fail, and only then changes anything. An invalid version changes nothing. Only run
// writes the fields; any goroutine may read atomic fields.
//
// When a version removes an api, the intake refuses the api's jobs from then on. The api's worker continues with its
// last configuration, so that the jobs in its queue still end. After a restart they wait until the api is configured
// again. If the api belongs to an account that Redis counts, Redis refuses the api as soon as another api of the
// account follows the new version. From that moment the api's jobs wait.
type follower struct {
	followerOptions

	seen    atomic.Uint64 // the newest version that take has considered
	version atomic.Uint64 // the version in force
	refused atomic.Pointer[refusedConfig]
	config  *config.Config            // in force
	tried   map[uint64]*config.Config // by version: configurations that failed since config came in force
	queues  map[string]*queue.Queue
	apis    atomic.Pointer[map[string]*ingest.API] // the apis that accept jobs
	takers  atomic.Pointer[map[string]*queue.Queue]
	scope   atomic.Pointer[secret.Scope]  // bounds which secrets a version from NATS may refer to
	inForce atomic.Pointer[config.Config] // the same as config, for other goroutines
}

// Bounds of following.
const (
	followTimeout = 30 * time.Second // for putting one version in force
	followRetry   = 2 * time.Second  // before a failed version is tried again
)

// followerOptions are the parts that a follower uses to put a configuration in force.
type followerOptions struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	store    admin.ConfigStore
	host     apiHost
	dispatch *dispatcher.Dispatcher // nil if this replica does not dispatch
	dedupe   *queue.Dedupe
	guard    *diskGuard
	inbox    string                     // prefix of this weir's own inboxes
	site     string                     // the site of this weir, empty for none
	guarded  func(*config.Config) error // refuses a configuration that leaves HTTP open to other users
	log      *slog.Logger
}

// apiHost opens and runs the apis of a configuration, and maintains the streams that they share.
type apiHost interface {
	ensureStreams(ctx context.Context, from, to *config.Config) error
	beginCallbacks(ctx context.Context, c *config.Config, version uint64) error
	openAPI(ctx context.Context, a *config.API, c *config.Config) (*apiParts, error)
	runAPI(a *apiParts)
	dropAPI(a *apiParts)
	openAccounts(ctx context.Context, c *config.Config) error
	runAccounts()
	confirm(c *config.Config)
	willRefuse(api string, c *config.Config) bool
	queueSettings(a *config.API, c *config.Config) queue.Settings
}

func newFollower(o followerOptions, scope *secret.Scope, opened []*apiParts, present *admin.Version) *follower {
	o.log = o.log.With("component", "config")
	f := &follower{followerOptions: o, config: present.Config, tried: map[uint64]*config.Config{}, queues: map[string]*queue.Queue{}}
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

// intake returns the apis that accept jobs now.
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

// recall tells an api's queue about a job that has ended, in this process or in another replica.
func (f *follower) recall(api string, job queue.Finished) {
	if q := (*f.takers.Load())[api]; q != nil {
		q.AddFinished([]queue.Finished{job})
	}
}

// run follows the configuration until ctx ends.
func (f *follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := f.watch(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("cannot watch the configuration; trying again", "err", err)
			stream.Sleep(ctx, followRetry)
		}
	}
	return nil
}

// watch puts every new version in force, until ctx ends or the watch breaks.
func (f *follower) watch(ctx context.Context) error {
	watcher, err := f.store.Watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // an error means that the watch has ended already
	for {
		select {
		case entry, open := <-watcher.Updates():
			if !open {
				return errors.New("the watch of the configuration has ended")
			}
			if entry == nil || entry.Revision() <= f.seen.Load() {
				continue // all existing versions were delivered, or this version is in force already
			}
			if err := f.take(ctx, entry); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// take puts one version in force. It logs a version that is not valid and skips it. It returns an error only if another
// try may succeed.
func (f *follower) take(ctx context.Context, entry jetstream.KeyValueEntry) error {
	v, err := admin.ReadVersion(entry)
	if err == nil {
		// Other replicas may follow the version even if this one does not.
		f.dedupe.Changing(v.Config.Dedupe, entry.Created())
		err = f.check(v.Config, f.scope.Load())
	}
	if err != nil {
		f.log.Error("a new configuration is not valid on this replica; the former one stays in force", "version", entry.Revision(), "err", err)
		f.refused.Store(&refusedConfig{entry.Revision(), err.Error(), v})
		f.seen.Store(entry.Revision())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	formers := append(slices.Collect(maps.Values(f.tried)), f.config)
	f.tried[v.Number] = v.Config
	if err := f.apply(ctx, v, formers); err != nil {
		return fmt.Errorf("put version %d in force: %w", v.Number, connect.ExplainStreams(foreign.ExplainOverlap(f.js, err)))
	}
	dedupeChanged(ctx, f.js, f.dedupe, f.log)
	changes := f.config.Diff(v.Config)
	f.config = v.Config
	f.host.confirm(v.Config)
	clear(f.tried)
	f.inForce.Store(v.Config)
	f.version.Store(v.Number)
	f.seen.Store(v.Number)
	LogWarnings(f.log, v.Config.File, v.Config.Warnings)
	f.log.Info("configuration applied", "version", v.Number, "who", v.Who, "from", v.From, "changes", len(changes))
	tellLeftovers(ctx, f.js, v.Config, f.log, func(api string) string {
		if f.host.willRefuse(api, v.Config) {
			return leftRefused
		}
		return leftRunning
	})
	return nil
}

// check returns why this worker cannot run by a configuration, nil if it can. scope bounds the configuration's
// references.
func (f *follower) check(c *config.Config, scope *secret.Scope) error {
	if err := refuseUnsupported(c, scope); err != nil {
		return err
	}
	if err := c.RefuseSite(f.site); err != nil {
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

// apply puts a version in force in the running worker. Steps that often fail come first, and every step can be
// repeated. If a step fails, some apis and streams already follow the version, and a change that timed out may still
// take effect. So apply changes everything that differs between v and any of formers. formers are the configuration in
// force, and the configurations that have failed since it came into force.
func (f *follower) apply(ctx context.Context, v *admin.Version, formers []*config.Config) error {
	next := v.Config
	var changes []config.Change
	for _, former := range formers {
		if err := f.host.ensureStreams(ctx, former, next); err != nil {
			return err
		}
		changes = append(changes, former.Diff(next)...)
	}
	if err := f.host.beginCallbacks(ctx, next, v.Number); err != nil {
		return err
	}
	if err := f.host.openAccounts(ctx, next); err != nil {
		return err
	}
	var added []*apiParts // opened, and not started yet
	defer func() {
		for _, a := range added { // a step has failed, and the next try opens them again
			f.host.dropAPI(a)
		}
	}()
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
		case config.Concerns(changes, a.Name) || movesInAccount(formers, a):
			if err := q.Raise(ctx, f.host.queueSettings(a, next)); err != nil {
				return fmt.Errorf("api %s: %w", a.Name, err)
			}
			changed = append(changed, a)
		}
	}
	f.host.runAccounts()
	for len(added) > 0 {
		a := added[0]
		added = added[1:]
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

// movesInAccount reports whether an api's membership of an account differs from its membership in any of the former
// configurations: the account may be another, or have other apis.
func movesInAccount(formers []*config.Config, a *config.API) bool {
	return slices.ContainsFunc(formers, func(former *config.Config) bool {
		was, known := former.API(a.Name)
		return known && !reflect.DeepEqual(was.Rules.In, a.Rules.In)
	})
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

// tellConfig publishes the event that this worker has applied its file.
func (w *link) tellConfig(ctx context.Context, change admin.ConfigChange) {
	w.log.Info("configuration applied", "version", change.NewVersion, "who", change.Who, "from", change.From, "changes", change.Changes)
	if err := change.Event().Publish(ctx, w.js); err != nil {
		w.log.Warn("could not store an event", "err", err)
	}
}

// refuseUnsupported fails if a configuration refers to a secret that is missing, because an api must not be called
// without its secret.
func refuseUnsupported(c *config.Config, scope *secret.Scope) error {
	var errs []error
	for _, p := range c.MissingSecrets(scope) {
		errs = append(errs, errors.New(p.In(c.File)))
	}
	if len(errs) == 0 {
		return nil
	}
	return cli.Usage(errors.Join(errs...))
}

// Log messages about jobs of an api that is not configured: at a start, and when a running weir removes the api.
const (
	leftAtStart = "jobs wait of an api that is not configured: configure it again to have them called"
	leftRunning = "jobs are left of an api that is not configured: they are called until weir restarts, and wait then until the api is configured again"
	leftRefused = "jobs are left of an api that is not configured: Redis refuses its calls once another api of its account follows, " +
		"and the jobs wait then until the api is configured again"
)

// tellLeftovers logs a warning for each api that is not configured and has waiting jobs. what returns the message.
func tellLeftovers(ctx context.Context, js jetstream.JetStream, c *config.Config, log *slog.Logger, what func(api string) string) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	found, err := admin.JobsLeft(ctx, js, c)
	if err != nil {
		log.Warn("cannot tell whether jobs of unconfigured apis are waiting", "err", err)
		return
	}
	for _, api := range slices.Sorted(maps.Keys(found)) {
		log.Warn(what(api), "api", api, "jobs", found[api])
	}
}

// refusedConfig is a version that the follower cannot put in force, and the reason. read is nil if the version cannot
// be read.
type refusedConfig struct {
	version uint64
	why     string
	read    *admin.Version
}

// mayCall returns why this replica must not begin to call, nil if it may. While the replica was away, a version that it
// cannot put in force may have lowered the share of an account, and another site may have been raised since.
func (f *follower) mayCall() error {
	r := f.refused.Load()
	if r == nil || r.version != f.seen.Load() {
		return nil
	}
	if len(f.inForce.Load().InForce()) == 0 && (r.read == nil || len(r.read.Shares) == 0) {
		return nil
	}
	return fmt.Errorf("version %d of the configuration is not valid here, and may have lowered the share of an account: %s", r.version, r.why)
}

// state returns the follower's state for operators. The service that answers operators adds the replica's name. state
// is safe to call from any goroutine.
func (f *follower) state() admin.ConfigState {
	s := admin.ConfigState{Seen: f.seen.Load(), Version: f.version.Load()}
	if r := f.refused.Load(); r != nil && r.version == s.Seen {
		s.Why = r.why
	}
	return s
}
