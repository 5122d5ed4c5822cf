package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
)

// openPartition takes a partition over and blocks until its calls may start. It fences the earlier owner, reads the end
// of the ledger, and then the stream, which it follows until close or lose. If it returns an error, nothing is left of
// the partition.
func (w *apiWorker) openPartition(ctx, hard context.Context, number int, t ownership.Tenure) error {
	p := &partition{
		w: w, Tenure: t, number: number, bucket: w.queue.Partitions()[number], cache: map[uint64]kept{}, holdings: w.queue.Holdings(), replay: newReplay(),
	}
	p.Of, p.name, p.Reading = p, recorder.QueueOf(p.bucket.Name()), true
	if w.env.restored != nil {
		p.restored = w.env.restored.Until[p.bucket.Name()]
	}
	var err error
	if p.markers, err = p.bucket.Own(ctx, w.env.instance); err != nil {
		return fmt.Errorf("api %s: %w", w.name, err)
	}
	if err = p.beginStocktaking(ctx); err != nil {
		return fmt.Errorf("api %s: %w", w.name, err)
	}
	if p.markers.Unreadable() {
		p.tellChange("the note of the partition's owner cannot be read, the store is damaged: that owner counts as one that died, and every key that has jobs here " +
			"waits as if its burst were used; look at the disk")
	}
	w.env.recorder.Look()                        // the earlier owner may have ended since
	p.Clean = p.Clean && !p.markers.AfterDeath() // an owner that left with calls under way may have released it
	base := context.WithoutCancel(hard)
	var reading, writing context.Context
	reading, p.stopReading = context.WithCancel(base)
	writing, p.stopMarkers = context.WithCancel(base)
	p.writer.Go(func() error { return p.markers.Run(writing) })
	if err := w.d.loadTail(ctx, w, number); err != nil {
		p.stopReading()
		p.stopMarkers()
		return errors.Join(err, p.writer.Wait())
	}
	w.mu.Lock()
	w.partitions[number] = p
	w.mu.Unlock()
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	p.reader.Go(func() error {
		err := p.bucket.Read(reading, queue.ReadOptions{
			Mark: func(e queue.Entry) { p.takeMarker(e) }, MarkersLoaded: func() { p.markersLoaded() }, Take: func(e queue.Entry) { p.add(hard, e) },
			Bodies: func() bool { return p.replay == nil || !p.replay.full }, CaughtUp: func() { p.open(reading); close(caughtUp) },
			Stalled: func(err error) { p.readerRestarted(err) }, Damaged: func() { p.damaged(reading) },
			Removed: func(r queue.Removal) { p.removed(hard, r) },
		})
		ended <- err
		if err != nil && reading.Err() == nil {
			p.broken(err)
		}
		return nil
	})
	select {
	case <-caughtUp:
		return nil
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = errLetGo
	}
	if p.Lease != nil {
		p.lose()
	} else {
		p.leave()
	}
	return fmt.Errorf("api %s: %w", w.name, err)
}

// leave stops reading a partition that no other replica can own and that is not read to its end. Its calls may still
// run: the worker's stop waits for them.
func (p *partition) leave() {
	p.w.mu.Lock()
	p.closing, p.Open = true, false
	p.w.mu.Unlock()
}

var errLetGo = errors.New("the partition was dropped while it was opened")

// readerRestarted counts and logs that the partition's reader was started again.
func (p *partition) readerRestarted(err error) {
	p.w.env.metrics.restarts.WithLabelValues(p.w.name).Inc()
	p.w.log.Warn("a partition's reader failed or went quiet; it resumes where it stopped", "stream", p.bucket.Name(), "err", err)
}

// broken drops a partition that this replica cannot work any more, so that another replica can take it. If no other
// replica may own it, broken ends the dispatcher.
func (p *partition) broken(err error) {
	err = fmt.Errorf("api %s: stream %s: %w", p.w.name, p.bucket.Name(), err)
	if p.Lease == nil {
		p.w.d.fail(err)
		return
	}
	p.w.log.Warn("partition released", "stream", p.bucket.Name(), "err", err)
	p.w.d.owner.Dropped(lease.PartitionID{API: p.w.name, Number: p.number})
	p.w.running.Go(func() { p.lose() })
}

// closeCheck is how often a closing partition's jobs are checked: no event tells that the last of them has settled.
const closeCheck = 5 * time.Millisecond

// close gives a partition up: no call of it starts any more, running calls end, and their outcomes are stored. It
// blocks until then. If ctx ends first, the partition is not given up, and the caller must lose it.
func (p *partition) close(ctx context.Context) error {
	p.w.mu.Lock()
	p.closing = true
	p.w.mu.Unlock()
	begun := p.shut()
	busy := begun
	tick := time.NewTicker(closeCheck)
	defer tick.Stop()
	for withdrawn := false; len(busy) > 0 || p.bucket.Unswept() > 0; {
		if busy = p.unwind(busy); len(busy) == 0 && !withdrawn {
			p.dropIdleIntents(begun)
			withdrawn = true
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("api %s: stream %s: its calls have not ended: %w", p.w.name, p.bucket.Name(), context.Cause(ctx))
		}
	}
	p.stopReader()
	p.closeInventory(ctx)
	p.remove()
	p.stopMarkers()
	err := p.writer.Wait()
	if err == nil {
		p.giveUp(ctx)
	}
	return err
}

// giveUp stores for the next owner that no call of the partition is under way.
func (p *partition) giveUp(ctx context.Context) {
	if err := p.markers.GiveUp(ctx); err != nil {
		p.w.log.Warn("could not record that a partition was closed in order; its next owner waits as after a crash", "stream", p.bucket.Name(), "err", err)
	}
}

// lose drops a partition that another replica may own by now. Running calls end, and nothing about them is stored: the
// new owner has judged their jobs by what it found. lose blocks only until the stream is no longer read.
func (p *partition) lose() {
	p.lost.Store(true)
	busy := p.shut()
	p.remove()
	p.stopMarkers()
	p.w.running.Go(func() {
		tick := time.NewTicker(closeCheck)
		defer tick.Stop()
		for busy = p.unwind(busy); len(busy) > 0; busy = p.unwind(busy) {
			<-tick.C // each of them will end: a call's timeout bounds it
		}
		_ = p.writer.Wait() // the new owner finds what could not be stored
	})
}

// shut stops calls of the partition from starting, and returns the queues that have jobs near their call.
func (p *partition) shut() (begun []*schedule.KeyQueue) {
	p.w.mu.Lock()
	p.Open = false
	p.w.mu.Unlock()
	p.w.eachLocked(p.w.s.Queues(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition && len(q.Jobs) > 0 {
			begun = append(begun, q)
		}
	})
	return begun
}

// unwind withdraws the jobs whose calls have not started, and returns the queues that still have jobs under way.
func (p *partition) unwind(queues []*schedule.KeyQueue) (busy []*schedule.KeyQueue) {
	w := p.w
	var fx schedule.Effects
	w.mu.Lock()
	busy = w.s.Unwind(queues, w.now(), &fx)
	w.mu.Unlock()
	w.slots.grants.settle(context.Background(), fx.Unused)
	w.caller.restAll(fx.Stale)
	w.mu.Lock()
	for _, q := range queues {
		if partitionOf(q).lost.Load() { // the queue may belong to another tenure by now
			p.forgetLocked(q) // forgets the jobs that rest now
		}
	}
	w.mu.Unlock()
	w.wakeUp()
	return busy
}

// dropIdleIntents deletes the intents of calls that did not start. The next owner would treat their jobs as called.
func (p *partition) dropIdleIntents(queues []*schedule.KeyQueue) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, q := range queues {
		for _, j := range q.Jobs {
			dropIdleIntentsLocked(j)
		}
	}
}

// dropIdleIntentsLocked deletes the intents of one job, unless its last call is lost and must be settled first.
func dropIdleIntentsLocked(t *schedule.Job) {
	if j, begun := t.Of.(*job); begun && j.lost == nil {
		j.dropIntentsLocked()
	}
}

// remove ends a partition's reading and forgets its keys.
func (p *partition) remove() {
	p.stopReader()
	p.w.mu.Lock()
	if p.w.partitions[p.number] == p {
		p.w.partitions[p.number] = nil
	}
	p.dropAllKept()
	p.replay = nil
	// The stored marks stay for the next owner.
	maps.DeleteFunc(p.w.notes.marks, func(_ string, m holdMark) bool { return m.part == p })
	p.w.mu.Unlock()
	p.w.eachLocked(p.w.s.Queues(), func(q *schedule.KeyQueue) {
		if q.Partition == &p.Partition {
			p.forgetLocked(q)
		}
	})
	p.w.mu.Lock()
	p.w.s.ForgetWaiting(&p.Partition)
	p.w.mu.Unlock()
}

// stopReader ends a partition's reading.
func (p *partition) stopReader() {
	p.stopReading()
	_ = p.reader.Wait() // the reader has reported its error itself
}

// forgetLocked forgets the jobs of a queue that are not being called, and frees their entries in the flight recorder.
func (p *partition) forgetLocked(q *schedule.KeyQueue) {
	for _, t := range q.Jobs {
		if j, begun := t.Of.(*job); begun && t.Rests() {
			j.entry.LetGo()
			j.adopted.LetGo()
		}
	}
	p.w.s.Forget(q)
}

// loseAll loses every partition that depends on a lost lease.
func (w *apiWorker) loseAll(lease *lease.Membership) {
	for number := range w.partitions {
		if p := w.ownedPartition(number); p != nil && p.Lease == lease {
			p.lose()
		}
	}
}

// abandon drops a job whose partition was lost. The new owner brings the job to its end.
func (w *settler) abandon(j *job) {
	w.unrecorded.accountedFor(j)
	j.entry.LetGo()
	j.adopted.LetGo()
	w.update(func(s *schedule.Schedule) { s.Finished(j.Job) })
}
