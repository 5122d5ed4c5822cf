package main

import (
	"context"
	"fmt"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/dispatcher"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
)

// openAPI is one api's parts, before they run.
type openAPI struct {
	name  string
	queue *queue.Queue
	// Where this replica dispatches:
	lane   dispatcher.APIOptions
	limits keeper
	watch  *levelWatch
	// settled is closed when no limit counts a bound any more; nil where none ever does.
	settled <-chan struct{}
}

// keeper keeps what one api's limits have counted where a restart finds it.
type keeper interface {
	run(ctx context.Context) error // until ctx ends
}

// openAPI makes an api's streams exist and reads what the last run left.
func (w *Worker) openAPI(ctx context.Context, a *config.API, c *config.Config) (*openAPI, error) {
	api := dispatchAPI(a, c)
	queue, err := queue.OpenQueue(ctx, queue.Options{
		Conn: w.nc, JetStream: w.js, Rules: api.Rules, Settings: w.queueSettings(a, c), Dedupe: w.dedupe,
		Others: w.server == nil, Holdings: w.holdings,
	})
	if err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	w.office.Announce(a.Name)
	opened := &openAPI{name: a.Name, queue: queue}
	if w.dispatch == nil {
		return opened, nil
	}
	if err := w.openLimits(ctx, opened, api); err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	opened.lane.API, opened.lane.Queue = api, queue
	return opened, nil
}

// openLimits opens where an api's limits are counted: in Redis, or in the process.
func (w *Worker) openLimits(ctx context.Context, a *openAPI, api *httpcall.API) error {
	if w.redis != nil {
		shared, err := openSharedLimits(ctx, w, api)
		if err != nil {
			return err
		}
		a.limits, a.lane = shared, dispatcher.APIOptions{
			Store: shared, Clock: schedule.OtherClock, TAT: func(string) bucket.Micros { return 0 }, Checkpoint: func() {},
		}
		a.watch = w.newLevelWatch(a.name, shared.levels)
		a.watch.unknown = shared.unknown
		return nil
	}
	if err := w.takeOver(ctx, api); err != nil {
		return err
	}
	store, err := bucket.NewMemory(api.Rules, w.clock.Now)
	if err != nil {
		return err
	}
	checkpoints, err := newCheckpointer(ctx, w, api.Name, store)
	if err != nil {
		return err
	}
	if checkpoints.accounts, err = openAccounts(ctx, w, api.Name, store); err != nil {
		return err
	}
	a.limits, a.lane = checkpoints, dispatcher.APIOptions{Store: store, Checkpoint: checkpoints.now, TAT: func(key string) bucket.Micros {
		tat, _ := store.TAT(key)
		return tat
	}}
	a.watch = w.newLevelWatch(a.name, func(context.Context) ([]bucket.Level, error) { return store.Levels(), nil })
	checkpoints.accounts.changed = func() {
		checkpoints.now()
		a.watch.now()
	}
	a.settled = checkpoints.accounts.settled
	return nil
}

func (w *Worker) queueSettings(a *config.API, c *config.Config) queue.Settings {
	return queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: w.settings.Replicas, Dedupe: c.Dedupe, Log: w.log},
		API:            a.Name, Partitions: w.settings.Partitions, Capacity: largestCapacity(a.Rules), MaxBody: a.MaxBody,
	}
}

// runAPI starts what an api's calls stand on. Its lane is the dispatcher's.
func (w *Worker) runAPI(a *openAPI) {
	w.lowerGo(func() error { return a.queue.Run(w.base) })
	if a.limits != nil {
		w.lowerGo(func() error { return a.limits.run(w.base) })
		w.lowerGo(func() error { return a.watch.run(w.soft) })
	}
}
