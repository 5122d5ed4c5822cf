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

// openPartition takes a partition over and blocks until its calls may start: its earlier owner is fenced, the ledger's end
// has been read, and then the stream, which is followed until close or lose. With an error nothing is left of it.
func (w *apiWorker) openPartition(ctx, hard context.Context, number int, t ownership.Tenure) error {
	p := &partition{
		w: w, Tenure: t, number: number, bucket: w.queue.Partitions()[number], cache: map[uint64]kept{}, holdings: w.queue.Holdings(), replay: newReplay(),
	}
	p.Of, p.name, p.Reading = p, recorder.QueueOf(p.bucket.Name()), true
	if w.d.opts.Restored != nil {
		p.restored = w.d.opts.Restored.Until[p.bucket.Name()]
	}
	var err error
	if p.markers, err = p.bucket.Own(ctx, w.d.opts.Instance); err != nil {
		return fmt.Errorf("api %s: %w", w.name, err)
	}
	if p.markers.Unreadable() {
		w.log.Warn("the partition's server cannot read by whom it was owned: that owner is taken for one that died, and keys wait for calls that it may have left",
			"stream", p.bucket.Name())
	}
	w.d.opts.Recorder.Look()                     // the owner before may have ended since
	p.Clean = p.Clean && !p.markers.AfterDeath() // who let go of it without ending its calls may have released it all the same
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
			Bodies: func() bool { return p.replay == nil || !p.replay.full }, CaughtUp: func() { p.open(); close(caughtUp) },
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

// leave takes no more jobs of a partition that nobody else can own, and is not read to its end. Calls of it may run: the
// worker's stop awaits them.
func (p *partition) leave() {
	p.w.mu.Lock()
	p.closing, p.Open = true, false
	p.w.mu.Unlock()
}

var errLetGo = errors.New("the partition was let go of while it was opened")

// readerRestarted counts a reader that was set up anew.
func (p *partition) readerRestarted(err error) {
	p.w.d.metrics.restarts.WithLabelValues(p.w.name).Inc()
	p.w.log.Warn("a partition's reader broke or went quiet; it goes on where it was", "stream", p.bucket.Name(), "err", err)
}

// broken lets go of a partition that cannot be worked any more: of one that others may own, to be taken again by
// whoever can; otherwise it ends the dispatcher.
func (p *partition) broken(err error) {
	err = fmt.Errorf("api %s: stream %s: %w", p.w.name, p.bucket.Name(), err)
	if p.Lease == nil {
		p.w.d.fail(err)
		return
	}
	p.w.log.Warn("a partition is let go of", "stream", p.bucket.Name(), "err", err)
	p.w.d.owner.Dropped(lease.PartitionID{API: p.w.name, Number: p.number})
	p.w.running.Go(func() { p.lose() })
}

// How a closing partition's state is looked at: no event tells that the last of its jobs has settled.
const closeCheck = 5 * time.Millisecond

// close gives a partition up: no call of it starts any more, those that run end, and what comes of them is stored.
// It blocks until then, or until ctx ends; then the partition is not given up, and is to be lost.
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
	p.remove()
	p.stopMarkers()
	err := p.writer.Wait()
	if err == nil {
		p.giveUp(ctx)
	}
	return err
}

// giveUp tells the next owner that nothing of a partition is under way.
func (p *partition) giveUp(ctx context.Context) {
	if err := p.markers.GiveUp(ctx); err != nil {
		p.w.log.Warn("its next owner will be careful with a partition that ended in order", "stream", p.bucket.Name(), "err", err)
	}
}

// lose lets go of a partition that somebody else may own by now. Calls that run end, and nothing about them is
// stored: the new owner has judged their jobs by what it found. It blocks only until the stream is not read any more.
func (p *partition) lose() {
	p.lost.Store(true)
	busy := p.shut()
	p.remove()
	p.stopMarkers()
	p.w.running.Go(func() {
		tick := time.NewTicker(closeCheck)
		defer tick.Stop()
		for busy = p.unwind(busy); len(busy) > 0; busy = p.unwind(busy) {
			<-tick.C // each of them is on its way to an end: a call's timeout bounds it
		}
		_ = p.writer.Wait() // what could not be stored is the new owner's to find
	})
}

// shut keeps a partition's calls from starting, and returns the queues that have jobs near their call.
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

// unwind takes back what can be taken back, and returns the queues that have jobs on their way still.
func (p *partition) unwind(queues []*schedule.KeyQueue) (busy []*schedule.KeyQueue) {
	w := p.w
	var fx schedule.Effects
	w.mu.Lock()
	busy = w.s.Unwind(queues, w.now(), &fx)
	w.mu.Unlock()
	w.grants.settle(context.Background(), fx.Unused)
	w.restAll(fx.Stale)
	w.mu.Lock()
	for _, q := range queues {
		if partitionOf(q).lost.Load() { // it may be another tenure's by now
			p.forgetLocked(q) // what rests now
		}
	}
	w.mu.Unlock()
	w.wakeUp()
	return busy
}

// dropIdleIntents takes back the intents of calls that did not start: the next owner would hold their jobs for called.
func (p *partition) dropIdleIntents(queues []*schedule.KeyQueue) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, q := range queues {
		for _, j := range q.Jobs {
			dropIdleIntentsLocked(j)
		}
	}
}

// dropIdleIntentsLocked does it for one job, unless its last call is lost: that is to be settled first.
func dropIdleIntentsLocked(t *schedule.Job) {
	if j, begun := t.Of.(*job); begun && j.lost == nil {
		j.dropIntentsLocked()
	}
}

// remove ends a partition's reading and forgets its keys.
func (p *partition) remove() {
	p.stopReading()
	_ = p.reader.Wait() // it has told its error itself
	p.w.mu.Lock()
	if p.w.partitions[p.number] == p {
		p.w.partitions[p.number] = nil
	}
	p.dropAllKept()
	p.replay = nil
	maps.DeleteFunc(p.w.marks, func(_ string, m holdMark) bool { return m.part == p }) // they stand for the next owner
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

// forgetLocked forgets the jobs of a queue that are not being called, and lets go of what was noted of them.
func (p *partition) forgetLocked(q *schedule.KeyQueue) {
	for _, t := range q.Jobs {
		if j, begun := t.Of.(*job); begun && t.Rests() {
			j.entry.LetGo()
			j.adopted.LetGo()
		}
	}
	p.w.s.Forget(q)
}

// ownedPartition is one partition as this process owns it, nil when it does not.
func (w *apiWorker) ownedPartition(number int) *partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.partitions[number]
}

// loseAll lets go of every partition that hangs on a lease that is lost.
func (w *apiWorker) loseAll(lease *lease.Membership) {
	for number := range w.partitions {
		if p := w.ownedPartition(number); p != nil && p.Lease == lease {
			p.lose()
		}
	}
}

// abandon lets go of a job whose partition was lost. Its end is the new owner's business.
func (w *apiWorker) abandon(j *job) {
	w.unrecorded.accountedFor(j)
	j.entry.LetGo()
	j.adopted.LetGo()
	w.update(func(s *schedule.Schedule) { s.Finished(j.Job) })
}
