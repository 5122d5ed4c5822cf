package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// follower keeps a running worker to the configuration in NATS. What a new version says is checked first, then all that
// can fail is done, and only then does anything change. A version that is not valid changes nothing.
//
// An api that is taken out is refused at the intake from then on; its worker goes on with its last configuration, so that
// the jobs in its queue still end. After a restart they wait there until the api is configured again.
type follower struct {
	w     *Worker
	store configStore
	log   *slog.Logger

	seen    atomic.Uint64 // the newest version that was looked at
	version atomic.Uint64 // in force
	refused atomic.Pointer[refusedConfig]
	config  *config.Config // in force
	queues  map[string]*queue.Queue
	apis    atomic.Pointer[map[string]*ingest.API] // that take jobs
	takers  atomic.Pointer[map[string]*queue.Queue]
}

// Bounds of following.
const (
	followTimeout = 30 * time.Second // to put one version in force
	followRetry   = 2 * time.Second  // until a version is tried again that NATS did not let us put in force
	headerRoom    = 64 << 10         // of a message, beside the job's body
)

func newFollower(w *Worker, store configStore, present *configVersion) *follower {
	f := &follower{
		w: w, store: store, log: w.log.With("component", "config"), config: present.config, queues: map[string]*queue.Queue{},
	}
	f.seen.Store(present.version)
	f.version.Store(present.version)
	for _, a := range w.opened {
		f.queues[a.name] = a.queue
	}
	f.takeJobsOf(present.config)
	return f
}

// intake returns the apis that take jobs now.
func (f *follower) intake() map[string]*ingest.API { return *f.apis.Load() }

func (f *follower) takeJobsOf(c *config.Config) {
	apis := map[string]*ingest.API{}
	for i := range c.APIs {
		a := &c.APIs[i]
		rule := ingestRule(a, c)
		rule.ReplyTo.Inbox = f.w.settings.NATSInbox
		apis[a.Name] = &ingest.API{Rule: rule, Queue: f.w.storeRoom.before(f.queues[a.Name])}
	}
	f.apis.Store(&apis)
	takers := maps.Clone(f.queues)
	f.takers.Store(&takers)
}

// recall lets a queue know a job that has ended, here or in another replica.
func (f *follower) recall(api string, job queue.Finished) {
	if q := (*f.takers.Load())[api]; q != nil {
		q.Recall([]queue.Finished{job})
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
	watcher, err := f.store.kv.Watch(ctx, currentKey)
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
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
	v, err := readVersion(entry)
	if err == nil {
		f.w.dedupe.Changing(v.config.Dedupe, entry.Created()) // others may follow it, whatever this one does
		err = f.check(v.config)
	}
	if err != nil {
		f.log.Error("a new configuration is not valid here; the former one stays in force", "version", entry.Revision(), "err", err)
		f.refused.Store(&refusedConfig{entry.Revision(), err.Error()})
		f.seen.Store(entry.Revision())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	changes := f.config.Diff(v.config)
	if err := f.apply(ctx, v.config, changes); err != nil {
		return fmt.Errorf("put version %d in force: %w", v.version, explainStart(explainOverlap(f.w.js, err)))
	}
	f.w.dedupeChanged(ctx)
	f.config = v.config
	f.seen.Store(v.version)
	f.version.Store(v.version)
	logWarnings(f.log, v.config.File, v.config.Warnings)
	f.log.Info("configuration applied", "version", v.version, "who", v.Who, "from", v.From, "changes", len(changes))
	f.w.tellLeftovers(ctx, v.config)
	return nil
}

// check says why this worker cannot run by a configuration.
func (f *follower) check(c *config.Config) error {
	if err := refuseUnsupported(c); err != nil {
		return err
	}
	rules := map[string]bucket.Rules{}
	for i := range c.APIs {
		a := &c.APIs[i]
		rules[a.Name] = dispatchAPI(a, c).Rules
		if err := rules[a.Name].Validate(); err != nil {
			return fmt.Errorf("api %s: %w", a.Name, err)
		}
	}
	if err := fitsPayload(c, f.w.nc); err != nil {
		return fmt.Errorf("%w; or restart weir, if the server is its own", err)
	}
	if f.w.dispatch == nil {
		return nil
	}
	return f.w.dispatch.CheckShared(rules)
}

// apply changes the running worker. What can fail comes first; whatever has been done of it when something fails only
// lets more in than the former configuration asks for, and every step can be done again.
func (f *follower) apply(ctx context.Context, next *config.Config, changes []config.Change) error {
	if err := f.w.ensureStreams(ctx, f.config, next); err != nil {
		return err
	}
	var added []*openAPI
	var changed []*config.API
	for i := range next.APIs {
		a := &next.APIs[i]
		q, known := f.queues[a.Name]
		switch {
		case !known:
			opened, err := f.w.openAPI(ctx, a, next)
			if err != nil {
				return err
			}
			added = append(added, opened)
		case concerns(changes, a.Name):
			if err := q.Raise(ctx, f.w.queueSettings(a, next)); err != nil {
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

func (f *follower) start(ctx context.Context, a *openAPI) error {
	f.w.runAPI(a)
	f.queues[a.name] = a.queue
	if f.w.dispatch == nil {
		return nil
	}
	return f.w.dispatch.StartAPI(ctx, a.lane)
}

func (f *follower) change(ctx context.Context, a *config.API, next *config.Config) error {
	api := dispatchAPI(a, next)
	if err := f.queues[a.Name].SetRules(api.Rules); err != nil {
		return fmt.Errorf("api %s: %w", a.Name, err)
	}
	if f.w.dispatch == nil {
		return nil
	}
	return f.w.dispatch.Apply(ctx, api)
}

// concerns reports whether one of the changes is one of the api's, or of all apis.
func concerns(changes []config.Change, api string) bool {
	path := "apis." + api
	for _, c := range changes {
		if c.Path == path || strings.HasPrefix(c.Path, path+".") || c.Path == "results.max_body" || c.Path == "dedupe" {
			return true
		}
	}
	return false
}

// tellConfig tells that this worker has applied its file.
func (w *Worker) tellConfig(ctx context.Context, change configData) {
	w.log.Info("configuration applied", "version", change.NewVersion, "who", change.Who, "from", change.From, "changes", change.Changes)
	if err := change.event().Publish(ctx, w.js); err != nil {
		w.log.Warn("an event could not be stored", "err", err)
	}
}
