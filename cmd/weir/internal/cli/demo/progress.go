package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/fakeapi"
)

const (
	drainWithin = 90 * time.Second // the longest wait for the queue, or half of it, to drain
	toldWithin  = 10 * time.Second // the longest wait for the letters and events of refused jobs
	lookEvery   = 10 * time.Millisecond
)

// progress is how far the queue of a burst has drained, as the api sees it.
type progress struct {
	called     int // different jobs that were called
	running    int // calls that are running
	inLast     int // calls in the last second
	most       int // the most calls within any second
	limited    int // calls that were answered 429
	charged    int64
	last       int64 // when the last call arrived, on the clock of the api's ledger
	ofAccepted int
}

func (d *demo) progress(b *burst) progress {
	p := progress{ofAccepted: len(b.accepted)}
	arrivals := d.api.Arrivals(b.key)
	now := d.now()
	for i := range arrivals {
		a := &arrivals[i]
		if a.Ending == fakeapi.Running {
			p.running++
		}
		if now-a.At < int64(time.Second) {
			p.inLast++
		}
		if a.Ending == fakeapi.Limited {
			p.limited++
		}
		p.charged += a.Charge
		p.last = max(p.last, a.At)
	}
	p.called = len(jobsOf(arrivals))
	p.most = fakeapi.FullestByCount(arrivals, time.Second).Count
	return p
}

// jobsOf returns the ids of the jobs that were called.
func jobsOf(arrivals []fakeapi.Arrival) map[string]struct{} {
	jobs := map[string]struct{}{}
	for i := range arrivals {
		jobs[arrivals[i].Header(idHeader)] = struct{}{}
	}
	return jobs
}

// watch shows how the queue drains, until enough returns true.
func (d *demo) watch(ctx context.Context, b *burst, enough func(progress) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainWithin, fmt.Errorf("the queue of %s was not called within %v", b.key, drainWithin))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		p := d.progress(b)
		if enough(p) {
			d.screen.settle()
			return nil
		}
		d.screen.progress(p)
		select {
		case <-tick.C:
		case <-ctx.Done():
			d.screen.settle()
			return context.Cause(ctx)
		}
	}
}

// awaitNotices blocks until there are at least as many letters, and as many events, as refused jobs. It returns both
// numbers.
func (d *demo) awaitNotices(ctx context.Context, refused int) (letters, events int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, toldWithin,
		fmt.Errorf("%d jobs were refused, but not as many letters and events came within %v", refused, toldWithin))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		letters, err = d.stored(ctx, "WEIR_DEAD", "weir.dead."+apiName+".overflow.>")
		if err != nil {
			return 0, 0, err
		}
		if events, _, err = d.events.Pending(); err != nil {
			return 0, 0, err
		}
		if letters >= refused && events >= refused {
			return letters, events, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return letters, events, fmt.Errorf("%w: %d letters, %d events", context.Cause(ctx), letters, events)
		}
	}
}

// waiting counts the jobs in weir's queues.
func (d *demo) waiting(ctx context.Context) (int, error) {
	const jobs = "weir.q." + apiName + ".*.j.>"
	queues := d.js.StreamNames(ctx, jetstream.WithStreamListSubject(jobs))
	sum := 0
	for queue := range queues.Name() {
		n, err := d.stored(ctx, queue, jobs)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, queues.Err()
}

// stored counts the messages of a stream whose subjects match.
func (d *demo) stored(ctx context.Context, stream, subject string) (int, error) {
	s, err := d.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	n := 0
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n, nil
}

// directly is what would happen to the same burst without weir, as computed by direct.
type directly struct {
	jobs      int
	served    int           // calls that are served at the first try
	refusals  int           // 429 answers until all calls are served
	allServed time.Duration // from the first call until all calls are served
}

// direct computes how an API with a limit would answer calls that are made at the times sent, by a program that tries
// each again after the seconds in Retry-After.
func direct(sent []time.Duration, limit fakeapi.VendorLimit) directly {
	type try struct {
		at    time.Duration
		again bool
	}
	var waiting []try
	for _, at := range sent {
		waiting = append(waiting, try{at: at})
	}
	out := directly{jobs: len(sent)}
	var passed []time.Duration // by time
	for len(waiting) > 0 {
		now := waiting[0]
		waiting = waiting[1:]
		wait := time.Duration(0)
		if n := len(passed) - limit.Count; n >= 0 {
			wait = passed[n] + limit.Per - now.at
		}
		if wait <= 0 {
			passed = append(passed, now.at)
			if !now.again {
				out.served++
			}
			continue
		}
		out.refusals++
		next := try{at: now.at + max(time.Second, (wait+time.Second-1).Truncate(time.Second)), again: true}
		i, _ := slices.BinarySearchFunc(waiting, next, func(x, y try) int { return int(x.at - y.at) })
		waiting = slices.Insert(waiting, i, next)
	}
	out.allServed = passed[len(passed)-1]
	return out
}
