package worker

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/takeover"
)

// apiParts holds the opened parts of one api, until they run.
type apiParts struct {
	name  string
	queue *queue.Queue
	// Set only if this replica dispatches:
	dispatch dispatcher.APIOptions
	limits   *limitstate.Limits
}

// openAPI creates the api's missing streams. It opens the api's queue and limits in the state that the last run left.
func (w *Worker) openAPI(ctx context.Context, a *config.API, c *config.Config) (*apiParts, error) {
	api := DispatchAPI(a, c)
	settings := w.queueSettings(a, c)
	partitions, err := queue.Partitions(ctx, w.js, &settings)
	if err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	if settings.FirstSeq, err = takeover.FirstSeqs(ctx, w.nc, w.control, a.Name, partitions); err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	queue, err := queue.OpenQueue(ctx, queue.Options{
		Conn: w.nc, JetStream: w.js, Rules: api.Rules, Settings: settings, Dedupe: w.dedupe,
		Others: w.server == nil, Holdings: w.holdings,
	})
	if err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	w.letters.Announce(a.Name)
	opened := &apiParts{name: a.Name, queue: queue}
	if w.dispatch == nil {
		return opened, nil
	}
	if opened.limits, err = limitstate.Open(ctx, w.limits, api, formerRules(w.past, a.Name)); err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	opened.dispatch = opened.limits.Dispatch
	opened.dispatch.API, opened.dispatch.Queue = api, queue
	return opened, nil
}

func (w *link) queueSettings(a *config.API, c *config.Config) queue.Settings {
	return queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: w.settings.Replicas, Dedupe: c.Dedupe, Log: w.log},
		API:            a.Name, Partitions: w.settings.Partitions, Capacity: largestCapacity(a.Rules), MaxBody: a.MaxBody,
	}
}

// runAPI runs the queue and the limits of an api. The dispatcher runs the api's worker.
func (w *Worker) runAPI(a *apiParts) {
	w.lowerGo(func() error { return a.queue.Run(w.base) })
	if a.limits != nil {
		w.lowerGo(func() error { return a.limits.Run(w.base) })
		w.lowerGo(func() error { return a.limits.WatchLevels(w.soft) })
	}
}

// dropAPI forgets an opened api that is not going to run.
func (w *Worker) dropAPI(a *apiParts) {
	if a.limits != nil {
		a.limits.Drop()
	}
}

// rememberMoved makes queues, results and letters remember the ids of the messages that `weir move` brought to this
// server, as long as duplicates of these messages may still come. A server that restores a stream keeps the messages
// and forgets their ids.
func (w *Worker) rememberMoved(ctx context.Context) error {
	arrived, err := migrate.ArrivedAt(ctx, w.js)
	if err != nil || time.Since(arrived) > w.config.Dedupe+2*time.Hour {
		return err
	}
	for _, a := range w.opened {
		if err := a.queue.Remember(ctx); err != nil {
			return fmt.Errorf("api %s: %w", a.name, err)
		}
	}
	if w.dispatch != nil {
		if err := w.dispatch.Remember(ctx); err != nil {
			return err
		}
	}
	return w.letters.Remember(ctx, w.js)
}
