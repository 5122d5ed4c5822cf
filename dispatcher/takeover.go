package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/lease"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/dispatcher/takeover"

	"golang.org/x/sync/errgroup"
)

// tenancy works a partition as long as this process owns it: it reads the partition's stream, and at the end gives the
// partition up in order or drops it.
type tenancy struct {
	*takeover.Takeover
	caller   *caller
	grants   *grantEnds
	notes    *settle.HoldNotes
	all      []*tenancy                 // the api's tenancies by number; the lane's lock guards it
	fail     func(err error)            // ends the dispatcher
	released func(id lease.PartitionID) // another replica may take the partition

	hard                     <-chan struct{} // closed when running calls must have ended
	stopReading, stopMarkers context.CancelFunc
	reading, writing         errgroup.Group
}

// newTenancy returns a tenancy that has not begun.
func (w *apiWorker) newTenancy(number int, t ownership.Tenure) *tenancy {
	p := &tenancy{
		caller: w.caller, grants: w.slots.grants, notes: w.notes, all: w.tenancies, fail: w.d.fail, released: func(id lease.PartitionID) { w.d.owner.Dropped(id) },
	}
	p.Takeover = takeover.New(lane.NewOwned(w.Lane, number, t), takeover.Options{Settler: w.settler, Notes: w.notes, Pace: w.pace, Dropped: p.broken})
	return p
}

// openPartition takes a partition over and blocks until its calls may start. It fences the earlier owner and reads the
// end of the ledger. It then reads the stream, and follows it until close or lose is called. If openPartition returns
// an error, this process does not own the partition any more.
func (w *apiWorker) openPartition(ctx, hard context.Context, number int, t ownership.Tenure) error {
	p := w.newTenancy(number, t)
	p.hard = hard.Done()
	err := p.Begin(ctx)
	if err != nil {
		return fmt.Errorf("api %s: %w", w.Name, err)
	}
	w.Env.Recorder.Look()                        // the earlier owner may have ended since the last look
	p.Clean = p.Clean && !p.Markers.AfterDeath() // an owner with calls under way may have released it
	base := context.WithoutCancel(hard)
	var reading, writing context.Context
	reading, p.stopReading = context.WithCancel(base)
	writing, p.stopMarkers = context.WithCancel(base)
	p.writing.Go(func() error { return p.Markers.Run(writing) })
	if err := w.d.tailLoads.loadTail(ctx, w, number); err != nil {
		p.stopReading()
		p.stopMarkers()
		return errors.Join(err, p.writing.Wait())
	}
	w.Mu.Lock()
	w.Partitions[number], w.tenancies[number] = p.Owned, p
	w.Mu.Unlock()
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	p.reading.Go(func() error {
		err := p.Read(reading, hard, func() { close(caughtUp) }, p.readerRestarted)
		ended <- err
		if err != nil && reading.Err() == nil {
			p.broken(err)
		}
		return nil
	})
	select {
	case <-caughtUp:
		if p.Lease != nil {
			w.answers.recall() // the former owner may have stored results since the last reading
		}
		return nil
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = lane.ErrLetGo
	}
	if p.Lease != nil {
		p.lose()
	} else {
		p.leave()
	}
	return fmt.Errorf("api %s: %w", w.Name, err)
}

// leave closes a partition that no other replica can own, before it has been read to its end. From then on no call of
// it starts. Running calls go on: the worker's stop waits for them, and then ends the reading.
func (p *tenancy) leave() {
	p.W.Mu.Lock()
	p.Closing, p.Open = true, false
	p.W.Mu.Unlock()
}

// readerRestarted counts and logs that the partition's reader was started again.
func (p *tenancy) readerRestarted(err error) {
	p.W.Env.Metrics.Restarts.WithLabelValues(p.W.Name).Inc()
	p.W.Log.Warn("a partition's reader failed or went quiet; it resumes where it stopped", "stream", p.Bucket.Name(), "err", err)
}

// broken drops a partition that this replica cannot work any more, so that another replica can take it. If no other
// replica may own it, broken ends the dispatcher.
func (p *tenancy) broken(err error) {
	err = fmt.Errorf("api %s: stream %s: %w", p.W.Name, p.Bucket.Name(), err)
	if p.Lease == nil {
		p.fail(err)
		return
	}
	p.W.Log.Warn("partition released", "stream", p.Bucket.Name(), "err", err)
	p.released(lease.PartitionID{API: p.W.Name, Number: p.Number})
	p.W.Running.Go(func() { p.lose() })
}

// closeCheck is how often a closing partition's jobs are checked: no event reports that the last of them has settled.
const closeCheck = 5 * time.Millisecond

// close gives a partition up: it starts no further call, lets running calls end, and blocks until their outcomes are
// stored. If ctx ends first, the partition is not given up, and the caller must lose it.
func (p *tenancy) close(ctx context.Context) error {
	p.W.Mu.Lock()
	p.Closing = true
	p.W.Mu.Unlock()
	begun := p.shut()
	busy := begun
	tick := time.NewTicker(closeCheck)
	defer tick.Stop()
	for withdrawn := false; len(busy) > 0 || p.Bucket.Unswept() > 0; {
		if busy = p.unwind(busy); len(busy) == 0 && !withdrawn {
			p.dropIdleIntents(begun)
			withdrawn = true
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("api %s: stream %s: its calls have not ended, or their jobs are not deleted: %w", p.W.Name, p.Bucket.Name(), context.Cause(ctx))
		}
	}
	p.stopReader()
	if err := p.AwaitRemovals(ctx); err != nil {
		return fmt.Errorf("api %s: stream %s: %w", p.W.Name, p.Bucket.Name(), err)
	}
	p.CloseInventory(ctx)
	p.Lost.Store(true) // a job that ends late is the next owner's
	p.remove()
	p.stopMarkers()
	err := p.writing.Wait()
	if err == nil {
		p.giveUp(ctx)
	}
	return err
}

// end ends a tenancy. The worker has stopped by then, and no call starts any more.
func (p *tenancy) end(hard context.Context) {
	read := p.IsRead()
	if p.stopReader(); read {
		p.CloseInventory(hard)
	}
	p.remove()
	p.stopMarkers()
	_ = p.writing.Wait() // each write that waited was answered
	if read && hard.Err() == nil && p.Bucket.Unswept() == 0 {
		p.giveUp(hard)
	}
}

// giveUp stores for the next owner that no call of the partition is under way.
func (p *tenancy) giveUp(ctx context.Context) {
	if err := p.Markers.GiveUp(ctx); err != nil {
		p.W.Log.Warn("could not record that a partition was closed in order; its next owner waits as after a crash", "stream", p.Bucket.Name(), "err", err)
	}
}

// lose drops a partition that another replica may own by now. Running calls go on to their ends, but nothing about them
// is stored: the new owner has judged their jobs by what it found. lose blocks only until the stream is no longer read.
func (p *tenancy) lose() {
	p.Lost.Store(true)
	busy := p.shut()
	p.remove()
	p.stopMarkers()
	p.W.Running.Go(func() {
		p.drain(busy)
		_ = p.writing.Wait() // the new owner finds what could not be stored
	})
}

// drain blocks until the jobs under way have ended, or hard ends. The timeout of calls bounds the wait, but a job whose
// outcome could not be stored before hard ended never ends.
func (p *tenancy) drain(busy []*schedule.KeyQueue) {
	tick := time.NewTicker(closeCheck)
	defer tick.Stop()
	for busy = p.unwind(busy); len(busy) > 0; busy = p.unwind(busy) {
		select {
		case <-tick.C:
		case <-p.hard:
			return
		}
	}
}

// shut stops new calls in the partition. It returns the queues with jobs that are near their call or past it.
func (p *tenancy) shut() (begun []*schedule.KeyQueue) {
	p.W.Mu.Lock()
	p.Open = false
	p.W.Mu.Unlock()
	p.W.EachLocked(p.W.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition && len(q.Jobs) > 0 {
			begun = append(begun, q)
		}
	})
	return begun
}

// unwind withdraws the jobs whose calls have not started, and returns the queues that still have jobs under way.
func (p *tenancy) unwind(queues []*schedule.KeyQueue) (busy []*schedule.KeyQueue) {
	w := p.W
	var fx schedule.Effects
	w.Mu.Lock()
	busy = w.Sched.Unwind(queues, w.Now(), &fx)
	w.Mu.Unlock()
	p.grants.settle(context.Background(), fx.Unused)
	p.caller.restAll(fx.Stale)
	w.Mu.Lock()
	for _, q := range queues {
		if lane.PartitionOf(q).Lost.Load() { // the queue may belong to another tenure by now
			p.forgetLocked(q) // forgets the jobs that rest now
		}
	}
	w.Mu.Unlock()
	w.WakeUp()
	return busy
}

// dropIdleIntents deletes the intents of calls that did not start. The next owner would otherwise treat their jobs as
// called.
func (p *tenancy) dropIdleIntents(queues []*schedule.KeyQueue) {
	p.W.Mu.Lock()
	defer p.W.Mu.Unlock()
	for _, q := range queues {
		for _, j := range q.Jobs {
			dropIdleIntentsLocked(j)
		}
	}
}

// dropIdleIntentsLocked deletes the intents of one job and of its pack's members. It keeps those of a job whose last
// call is lost and must be settled first.
func dropIdleIntentsLocked(t *schedule.Job) {
	for _, m := range t.Members() {
		dropIdleIntentsLocked(m)
	}
	if j, begun := t.Of.(*lane.Job); begun && j.Lost == nil {
		j.DropIntentsLocked()
	}
}

// remove ends a partition's reading and forgets its keys.
func (p *tenancy) remove() {
	p.stopReader()
	p.W.Mu.Lock()
	if p.W.Partitions[p.Number] == p.Owned {
		p.W.Partitions[p.Number], p.all[p.Number] = nil, nil
	}
	p.Cache.DropAllKept()
	p.ForgetLocked()
	p.notes.ForgetPartitionLocked(p.Owned)
	p.W.Mu.Unlock()
	p.W.EachLocked(p.W.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition {
			p.forgetLocked(q)
		}
	})
	p.W.Mu.Lock()
	p.W.Sched.ForgetWaiting(&p.Partition)
	p.W.Mu.Unlock()
}

// stopReader ends a partition's reading.
func (p *tenancy) stopReader() {
	p.stopReading()
	_ = p.reading.Wait() // the reader has reported its error itself
}

// forgetLocked forgets the jobs of a queue that are not being called, and frees their entries in the flight recorder.
// Jobs of other partitions stop waiting for the answers of these jobs.
func (p *tenancy) forgetLocked(q *schedule.KeyQueue) {
	for t := range q.Idle {
		if j, begun := t.Of.(*lane.Job); begun {
			j.Entry.LetGo()
			j.Adopted.LetGo()
			p.W.LeaveLocked(j)
		}
	}
	p.W.Sched.Forget(q)
}

// tenancyOf returns this process's tenancy of a partition, nil if it does not own the partition.
func (w *apiWorker) tenancyOf(number int) *tenancy {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.tenancies[number]
}

// loseAll loses every partition that depends on a lost lease.
func (w *apiWorker) loseAll(lease *lease.Membership) {
	for number := range w.Partitions {
		if p := w.tenancyOf(number); p != nil && p.Lease == lease {
			p.lose()
		}
	}
}
