package dispatcher

import (
	"context"
	"time"

	"weir/bucket/queue"
	"weir/dispatcher/schedule"
)

// retireRecorders drops the notes of ended processes when everything in them is stored elsewhere. It blocks until ctx
// ends.
func (d *Dispatcher) retireRecorders(ctx context.Context) {
	tick := time.NewTicker(retireCheck)
	defer tick.Stop()
	var looked time.Time // when hasOrphans was last called
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch {
		case d.opts.Recorder.Former() == 0:
		case d.owner != nil:
			d.opts.Recorder.Retire(retireOther)
		case d.allRecovered() && time.Since(looked) > orphanCheck: // calls that had not begun are adopted by then
			looked = time.Now()
			if d.hasOrphans(ctx) {
				d.opts.Recorder.Retire(retireOther)
			} else {
				d.opts.Recorder.Retire(0)
			}
		}
	}
}

// allRecovered reports whether the ledger has a record of every call that was under way when its process ended.
func (d *Dispatcher) allRecovered() bool {
	for _, w := range d.workersNow() {
		if _, ok := d.Recovered(w.Name); !ok {
			return false
		}
	}
	return true
}

// hasOrphans reports whether there are queues of APIs that are not configured now, which may hold intents. It also
// returns true if it cannot find out.
func (d *Dispatcher) hasOrphans(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, orphanCheck)
	defer cancel()
	worked := map[string]bool{}
	for _, w := range d.workersNow() {
		worked[w.Name] = true
	}
	names := d.opts.JetStream.StreamNames(ctx)
	orphan := false
	for name := range names.Name() {
		api, ok := queue.APIOf(name)
		orphan = orphan || ok && !worked[api]
	}
	return orphan || names.Err() != nil
}

// Times of retireRecorders.
const (
	retireCheck = 250 * time.Millisecond
	// retireOther is how long notes are kept for replicas that may take over the called jobs, and for queues of APIs
	// that may be configured again.
	retireOther = time.Hour
	orphanCheck = 5 * time.Second
)

// Recovered reports whether the ledger has every call that was made before this process took an api's partitions.
// unlogged is how many calls it may lack because their records can never be written. ok is false while this process
// does not own every partition of the api.
func (d *Dispatcher) Recovered(api string) (unlogged int, ok bool) {
	w := d.worker(api)
	if w == nil {
		return 0, false
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, p := range w.Partitions {
		if p == nil || p.Reading {
			return 0, false
		}
	}
	return w.settler.Unrecorded.Left()
}

// Quiet reports whether no call of an api is running and every outcome is stored, including the outcomes of calls that
// recovery found. The ledger then has every call. Quiet looks at every key that has jobs.
func (d *Dispatcher) Quiet(api string) bool {
	w := d.worker(api)
	if w == nil {
		return true
	}
	w.Mu.Lock()
	quiet := !w.settler.FindingLocked()
	w.Mu.Unlock()
	if quiet {
		w.EachLocked(w.Sched.Queues.All(), func(q *schedule.KeyQueue) { quiet = quiet && !q.Jobs.Busy() })
	}
	return quiet
}
