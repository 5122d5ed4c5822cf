package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// latency is how long a job takes from its publish to its call, in an empty bucket, beside a message's way to a consumer:
// one every 10 ms, in turns: by then what came of the one before is stored, and the bucket is empty.
func latency(ctx context.Context, s *stage, r *Report) error {
	if err := s.serve(ctx, busyAPIs); err != nil {
		return err
	}
	receivers := map[string]receiver{}
	bare, err := s.references(ctx, false, func(ctx context.Context, name string, js jetstream.JetStream, _ []int) (contestant, error) {
		came, stop, err := bareReceiver(ctx, js)
		if err != nil {
			return contestant{}, err
		}
		s.later(func() error { stop(); return nil })
		receivers[name] = receiver{js, came}
		return contestant{name: name}, nil
	})
	if err != nil {
		return err
	}
	job := plainMsg(s.o.Body)
	job.Subject = "weir.jobs.idempotent.one"
	once := plainMsg(s.o.Body)
	once.Subject = "weir.jobs.once.one"
	s.sink.keep.Store(true)
	toCall := func(ctx context.Context, m *nats.Msg) (time.Duration, error) {
		until := s.sink.calls.Load() + 1
		began := time.Now()
		if _, err := s.js.PublishMsg(ctx, m); err != nil {
			return 0, fmt.Errorf("publish a job: %w", err)
		}
		if err := s.sink.await(ctx, until); err != nil {
			return 0, err
		}
		for _, at := range s.sink.taken() {
			return at[len(at)-1].Sub(began), nil
		}
		return 0, fmt.Errorf("a call has no time")
	}
	all := []*series{
		{name: "weir, idempotent", sample: func(ctx context.Context) (time.Duration, error) { return toCall(ctx, job) }},
		{name: "weir, not idempotent", sample: func(ctx context.Context) (time.Duration, error) { return toCall(ctx, once) }},
	}
	for _, c := range bare {
		to := receivers[c.name]
		all = append(all, &series{name: c.name, sample: func(ctx context.Context) (time.Duration, error) { return to.sample(ctx, plainMsg(s.o.Body)) }})
	}
	contestants := make([]contestant, len(all))
	for i, x := range all {
		contestants[i] = contestant{name: x.name, run: x.round}
	}
	if r.Contenders, err = s.contest(ctx, "ms, p50", contestants); err != nil {
		return err
	}
	for i, x := range all {
		r.Contenders[i].Also = []Also{{"p99", "ms", spread(x.late).Median}}
	}
	for i, reference := range r.Contenders[2:] {
		slow := Contender{Name: reference.Name + ", p99", Each: all[2+i].late[1:]}
		for k, weir := range r.Contenders[:2] {
			r.Ratios = append(r.Ratios, ratio(weir, reference), ratio(Contender{Name: weir.Name + ", p99", Each: all[k].late[1:]}, slow))
		}
	}
	return nil
}

// receiver is a reference's: what is published to its stream comes back.
type receiver struct {
	js   jetstream.JetStream
	came <-chan time.Time
}

func (r receiver) sample(ctx context.Context, m *nats.Msg) (time.Duration, error) {
	began := time.Now()
	if _, err := r.js.PublishMsg(ctx, m); err != nil {
		return 0, fmt.Errorf("publish a message: %w", err)
	}
	select {
	case at := <-r.came:
		return at.Sub(began), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// series is one contestant's samples.
type series struct {
	name   string
	sample func(ctx context.Context) (time.Duration, error)
	late   []float64 // the p99 of each round, in ms; the first is of the round that does not count
}

// apart is from one sample to the next.
const apart = 10 * time.Millisecond

// round takes samples one after the other and returns their median, in ms.
func (x *series) round(ctx context.Context, samples int) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("a round did not end within %v", within))
	defer cancel()
	took := make([]time.Duration, samples)
	next := time.NewTicker(apart)
	defer next.Stop()
	for i := range took {
		select {
		case <-next.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		var err error
		if took[i], err = x.sample(ctx); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	x.late = append(x.late, float64(took[samples*99/100].Microseconds())/1000)
	return float64(took[samples/2].Microseconds()) / 1000, nil
}
