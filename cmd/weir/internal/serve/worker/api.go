package worker

import (
	"context"
	"fmt"
	"slices"
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
	var err error
	if settings.FirstSeq, err = takeover.FirstSeqs(ctx, w.nc, w.control, a.Name, settings.Partitions); err != nil {
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
	if opened.limits, err = limitstate.Open(ctx, w.limits, api, w.formerRules(a.Name)); err != nil {
		return nil, fmt.Errorf("api %s: %w", a.Name, err)
	}
	opened.dispatch = opened.limits.Dispatch
	opened.dispatch.API, opened.dispatch.Queue = api, queue
	return opened, nil
}

// forgetAccounts makes the limits forget the use of accounts that no api has any more.
func (w *Worker) forgetAccounts(ctx context.Context) error {
	if w.dispatch == nil {
		return nil
	}
	return limitstate.ForgetAccounts(ctx, w.limits, func(account string) bool {
		return slices.ContainsFunc(w.config.APIs, func(a config.API) bool { return a.Account == account })
	})
}

// openAccounts opens the limits of those accounts of a configuration that are not open yet. After the start only the
// follower calls it.
func (w *Worker) openAccounts(ctx context.Context, c *config.Config) error {
	if w.dispatch == nil {
		return nil
	}
	for i := range c.APIs {
		rules := c.APIs[i].CallRules()
		if rules.In == nil || w.limits.Pools.Has(rules.In.Account) {
			continue
		}
		opened, err := limitstate.OpenAccount(ctx, w.limits, rules)
		if err != nil {
			return fmt.Errorf("account %s: %w", rules.In.Account, err)
		}
		if opened != nil {
			w.newAccounts = append(w.newAccounts, opened)
		}
	}
	return nil
}

// runAccounts runs the limits of newly opened accounts.
func (w *Worker) runAccounts() {
	for _, a := range w.newAccounts {
		w.lowerGo(func() error { return a.Run(w.base) })
	}
	w.newAccounts = nil
}

// confirm tells the limits in Redis that the rules of this configuration are in force for all its apis.
func (w *Worker) confirm(c *config.Config) {
	if w.dispatch != nil {
		w.limits.Pools.Confirm(c.Version, func(api string) bool { _, has := c.API(api); return has })
	}
}

// willRefuse reports whether Redis refuses calls of an api that configuration c does not name. Redis refuses them now,
// or as soon as another api of the api's account follows c.
func (w *Worker) willRefuse(api string, c *config.Config) bool {
	if w.dispatch == nil {
		return false
	}
	account := w.limits.Pools.AccountInRedis(api)
	return account != "" && slices.ContainsFunc(c.APIs, func(a config.API) bool { return a.Account == account })
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

// accountsReady bounds how long a start waits until limits count their exact use.
const accountsReady = 2 * time.Second

// awaitAccounts blocks until every limit counts its exact use, but for accountsReady at most. Without this wait,
// operators would see only an upper bound right after the start. Calls begin during the wait.
func (w *Worker) awaitAccounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, accountsReady)
	defer cancel()
	for _, a := range w.opened {
		if !a.limits.AwaitExact(ctx) {
			return
		}
	}
	for _, a := range w.accounts {
		if !a.AwaitExact(ctx) {
			return
		}
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
