package dispatcher

import (
	"context"
	"fmt"
	"slices"

	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// configChange carries a new configuration of a worker's api to the loop.
type configChange struct {
	api  *httpcall.API
	done chan error
}

// Apply puts a new configuration of an api in force. Waiting jobs get the new rules, running calls end by the old ones,
// and a granted slot stays granted. If Apply returns an error, it has changed nothing, unless ctx ended. Changes are
// applied one at a time.
func (d *Dispatcher) Apply(ctx context.Context, api *httpcall.API) error {
	w := d.worker(api.Name)
	if w == nil {
		return lane.ErrNoAPI
	}
	c := configChange{api, make(chan error, 1)}
	select {
	case w.changes <- c:
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", w.Name, context.Cause(ctx))
	}
	w.WakeUp()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", w.Name, context.Cause(ctx))
	}
}

// adoptChange applies a waiting change if no round of asks is under way. Only the loop calls adoptChange, and only the
// loop begins rounds. So no ask by the old rules reaches the store after the new rules do.
func (w *apiWorker) adoptChange() {
	w.Mu.Lock()
	asking := w.Sched.At(w.Now()).Asking()
	w.Mu.Unlock()
	if asking {
		return // the end of the round wakes the loop
	}
	select {
	case c := <-w.changes:
		c.done <- w.adopt(c.api)
	default:
	}
}

func (w *apiWorker) adopt(api *httpcall.API) error {
	if err := w.slots.store.Apply(api.Rules); err != nil {
		return fmt.Errorf("api %s: %w", w.Name, err)
	}
	w.Mu.Lock()
	former, now := w.Terms, w.Now()
	next := w.Env.NewTerms(api, former)
	w.pace.Since = now
	w.Terms = next
	w.Sched.Adopt(next.Policy)
	w.AdoptReuseLocked()
	if w.Sched.At(now).Denied() {
		w.Sched.Holds.TryNow(now)
	}
	if hold, held := w.Env.Restored.Hold(&api.Rules, now); held {
		w.Sched.Holds.Hold(nil, hold.Until, hold.Why)
	}
	queues := slices.Collect(w.Sched.Queues.All())
	w.Mu.Unlock()
	w.EachLocked(slices.Values(queues), func(q *schedule.KeyQueue) { w.Sched.Rebind(q, now) })
	w.answers.recall()
	if former.Call.Conns != next.Call.Conns {
		former.Call.Conns.Close()
	}
	former.Polls.Close()
	return nil
}

// restAll lets jobs rest that were made ready but are not called now.
func (w *caller) restAll(stale []*schedule.Job) {
	if len(stale) == 0 {
		return
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, j := range stale {
		w.restOrderedLocked(j)
	}
}

// restOrderedLocked drops the intents of one ready job and orders its goroutine to let the job rest.
func (w *caller) restOrderedLocked(t *schedule.Job) {
	j := lane.JobLocked(t)
	j.DropIntentsLocked()
	w.LeadRestedLocked(j)
	w.orderLocked(j, lane.ToRest)
}
