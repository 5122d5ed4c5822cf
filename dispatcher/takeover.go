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
)

// openPart takes a partition over and blocks until its calls may start: its earlier owner is fenced, the ledger's end
// has been read, and then the stream, which is followed until closePart or losePart. With an error nothing is left of it.
func (l *lane) openPart(ctx, hard context.Context, number int, t ownership.Tenure) error {
	p := &part{
		Tenure: t, number: number, bucket: l.queue.Partitions()[number], cache: map[uint64]kept{}, holdings: l.queue.Holdings(), replay: newReplay(),
	}
	var err error
	if p.markers, err = p.bucket.Own(ctx, l.d.opts.Instance); err != nil {
		return fmt.Errorf("api %s: %w", l.name, err)
	}
	p.Clean = p.Clean && !p.markers.AfterDeath() // who let go of it without ending its calls may have released it all the same
	base := context.WithoutCancel(hard)
	var reading, writing context.Context
	reading, p.stopReading = context.WithCancel(base)
	writing, p.stopMarkers = context.WithCancel(base)
	p.writer.Go(func() error { return p.markers.Run(writing) })
	if err := l.d.learn(ctx, l, number); err != nil {
		p.stopReading()
		p.stopMarkers()
		return errors.Join(err, p.writer.Wait())
	}
	l.mu.Lock()
	l.parts[number] = p
	l.mu.Unlock()
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	p.reader.Go(func() error {
		err := p.bucket.Read(reading, queue.ReadOptions{
			Mark: func(e queue.Entry) { l.mark(p, e) }, Marked: func() { l.marked(p) }, Take: func(e queue.Entry) { l.take(hard, p, e) },
			Bodies: func() bool { return p.replay == nil || !p.replay.full }, CaughtUp: func() { l.open(p); close(caughtUp) },
			Deaf: func(err error) { l.deaf(p, err) },
		})
		ended <- err
		if err != nil && reading.Err() == nil {
			l.broken(p, err)
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
		l.losePart(p)
	} else {
		l.leavePart(p)
	}
	return fmt.Errorf("api %s: %w", l.name, err)
}

// leavePart takes no more jobs of a partition that nobody else can own, and is not read to its end. Calls of it may run: the
// lane's stop awaits them.
func (l *lane) leavePart(p *part) {
	l.mu.Lock()
	p.closing, p.open = true, false
	l.mu.Unlock()
}

var errLetGo = errors.New("the partition was let go of while it was opened")

// deaf counts a reader that was set up anew.
func (l *lane) deaf(p *part, err error) {
	l.d.metrics.deaf.WithLabelValues(l.name).Inc()
	l.log.Warn("a partition's reader broke or went quiet; it goes on where it was", "stream", p.bucket.Name(), "err", err)
}

// broken lets go of a partition that cannot be worked any more: of one that others may own, to be taken again by
// whoever can; otherwise it ends the dispatcher.
func (l *lane) broken(p *part, err error) {
	err = fmt.Errorf("api %s: stream %s: %w", l.name, p.bucket.Name(), err)
	if p.Lease == nil {
		l.d.fail(err)
		return
	}
	l.log.Warn("a partition is let go of", "stream", p.bucket.Name(), "err", err)
	l.d.owner.Dropped(lease.PartitionID{API: l.name, Number: p.number})
	l.running.Go(func() { l.losePart(p) })
}

// How a closing part's state is looked at: no event tells that the last of its jobs has settled.
const closeCheck = 5 * time.Millisecond

// closePart gives a partition up: no call of it starts any more, those that run end, and what comes of them is stored.
// It blocks until then, or until ctx ends; then the partition is not given up, and is to be lost.
func (l *lane) closePart(ctx context.Context, p *part) error {
	l.mu.Lock()
	p.closing = true
	l.mu.Unlock()
	begun := l.shut(p)
	busy := begun
	tick := time.NewTicker(closeCheck)
	defer tick.Stop()
	for withdrawn := false; len(busy) > 0 || p.bucket.Unswept() > 0; {
		if busy = l.unwind(busy); len(busy) == 0 && !withdrawn {
			l.dropIdleIntents(begun)
			withdrawn = true
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("api %s: stream %s: its calls have not ended: %w", l.name, p.bucket.Name(), context.Cause(ctx))
		}
	}
	l.removePart(p)
	p.stopMarkers()
	err := p.writer.Wait()
	if err == nil {
		l.giveUp(ctx, p)
	}
	return err
}

// giveUp tells the next owner that nothing of a partition is under way.
func (l *lane) giveUp(ctx context.Context, p *part) {
	if err := p.markers.GiveUp(ctx); err != nil {
		l.log.Warn("its next owner will be careful with a partition that ended in order", "stream", p.bucket.Name(), "err", err)
	}
}

// losePart lets go of a partition that somebody else may own by now. Calls that run end, and nothing about them is
// stored: the new owner has judged their jobs by what it found. It blocks only until the stream is not read any more.
func (l *lane) losePart(p *part) {
	p.lost.Store(true)
	busy := l.shut(p)
	l.removePart(p)
	p.stopMarkers()
	l.running.Go(func() {
		tick := time.NewTicker(closeCheck)
		defer tick.Stop()
		for busy = l.unwind(busy); len(busy) > 0; busy = l.unwind(busy) {
			<-tick.C // each of them is on its way to an end: a call's timeout bounds it
		}
		_ = p.writer.Wait() // what could not be stored is the new owner's to find
	})
}

// shut keeps a part's calls from starting, and returns the lines that have jobs near their call.
func (l *lane) shut(p *part) (begun []*line) {
	l.mu.Lock()
	p.open = false
	seen := 0
	for _, line := range l.s.lines {
		if line.part == p && len(line.tasks) > 0 {
			begun = append(begun, line)
		}
		l.breathe(&seen)
	}
	l.mu.Unlock()
	return begun
}

// unwind takes back what can be taken back, and returns the lines that have jobs on their way still.
func (l *lane) unwind(lines []*line) (busy []*line) {
	var fx effects
	l.mu.Lock()
	busy = l.s.unwind(lines, l.now(), &fx)
	l.mu.Unlock()
	l.settleGrants(context.Background(), fx.unused)
	l.letGo(fx.stale)
	l.mu.Lock()
	for _, line := range lines {
		if line.part.lost.Load() {
			l.s.forget(line) // what rests now
		}
	}
	l.mu.Unlock()
	l.kick()
	return busy
}

// dropIdleIntents takes back the intents of calls that did not start: the next owner would hold their jobs for called.
func (l *lane) dropIdleIntents(lines []*line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range lines {
		for _, t := range line.tasks {
			if t.lost == nil {
				l.dropIntentsLocked(t)
			}
		}
	}
}

// removePart ends a part's reading and forgets its keys.
func (l *lane) removePart(p *part) {
	p.stopReading()
	_ = p.reader.Wait() // it has told its error itself
	l.mu.Lock()
	if l.parts[p.number] == p {
		l.parts[p.number] = nil
	}
	p.dropAllKept()
	p.replay = nil
	maps.DeleteFunc(l.marks, func(_ string, m holdMark) bool { return m.part == p }) // they stand for the next owner
	seen := 0
	for _, line := range l.s.lines {
		if line.part == p {
			l.s.forget(line)
		}
		l.breathe(&seen)
	}
	l.s.forgetWaiting(p)
	l.mu.Unlock()
}

// part is one partition as this process owns it, nil when it does not.
func (l *lane) part(number int) *part {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parts[number]
}

// loseAll lets go of every partition that hangs on a lease that is lost.
func (l *lane) loseAll(lease *lease.Membership) {
	for number := range l.parts {
		if p := l.part(number); p != nil && p.Lease == lease {
			l.losePart(p)
		}
	}
}

// abandon lets go of a job whose partition was lost. Its end is the new owner's business.
func (l *lane) abandon(t *task) {
	l.accountedFor(t)
	l.change(func(s *schedule) { s.finished(t) })
}

// mayCall reports whether a call of the part may start now, or what came of one may be stored. It is asked right before
// each.
func (p *part) mayCall() bool {
	return !p.lost.Load() && p.Valid()
}
