package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/contest"
)

// latency measures the time from a job's publish to its call in an empty bucket, and beside it the time that a message
// takes to a consumer. It takes one sample every 10 ms. By then the result of the last call is stored and the bucket is
// empty.
func latency(ctx context.Context, s *stage, r *Report) error {
	w, err := s.serve(ctx, "weir", busyAPIs)
	if err != nil {
		return err
	}
	js, err := s.connect(w.url)
	if err != nil {
		return err
	}
	toCall := func(api string) sample {
		m := &nats.Msg{Subject: "weir.jobs." + api + ".one", Data: contest.Body(0, s.o.Body)}
		return func(ctx context.Context) (time.Duration, error) {
			calls, err := s.api.Round(ctx, "/"+api, 1, within, func(ctx context.Context) (int64, error) {
				began := time.Now().UnixNano()
				if _, err := js.PublishMsg(ctx, m); err != nil {
					return 0, fmt.Errorf("publish a job: %w", err)
				}
				return began, nil
			})
			if err != nil {
				return 0, err
			}
			return time.Duration(calls.Times[0] - calls.Began), nil
		}
	}
	all := []*series{{name: "weir, idempotent", sample: toCall("idempotent")}, {name: "weir, not idempotent", sample: toCall("once")}}
	_, err = s.references(ctx, false, func(ctx context.Context, ref reference) (contestant, error) {
		sample, err := s.toConsumer(ctx, ref.url)
		all = append(all, &series{name: ref.name, sample: sample})
		return contestant{}, err
	})
	if err != nil {
		return err
	}
	contestants := make([]contestant, len(all))
	for i, x := range all {
		contestants[i] = contestant{name: x.name, run: x.round}
	}
	if r.Contenders, err = s.contest(ctx, "ms, p50", contestants); err != nil {
		return err
	}
	for i, x := range all {
		r.Contenders[i].Also = []Also{{"p99", "ms", contest.SpreadOf(x.late).Median}}
	}
	for i, reference := range r.Contenders[2:] {
		slow := Contender{Name: reference.Name + ", p99", Each: all[2+i].late[1:]}
		for k, weir := range r.Contenders[:2] {
			r.Ratios = append(r.Ratios, ratio(weir, reference), ratio(Contender{Name: weir.Name + ", p99", Each: all[k].late[1:]}, slow))
		}
	}
	return nil
}

// toConsumer returns a sample of the time that a message takes to a consumer of a bare stream.
func (s *stage) toConsumer(ctx context.Context, url string) (sample, error) {
	js, err := s.connect(url)
	if err != nil {
		return nil, err
	}
	if err := contest.BareStreams(ctx, js, 1); err != nil {
		return nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, contest.WaitingStream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return nil, fmt.Errorf("make the consumer of the reference: %w", err)
	}
	came := make(chan time.Time, 1)
	consuming, err := consumer.Consume(func(jetstream.Msg) {
		select {
		case came <- time.Now():
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, fmt.Errorf("consume the stream of the reference: %w", err)
	}
	s.Later(func() error { consuming.Stop(); return nil })
	m := &nats.Msg{Subject: contest.BareSubject + "." + contest.Waiting + ".one", Data: contest.Body(0, s.o.Body)}
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		if _, err := js.PublishMsg(ctx, m); err != nil {
			return 0, fmt.Errorf("publish a message: %w", err)
		}
		select {
		case at := <-came:
			return at.Sub(began), nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}, nil
}

// sample measures one time.
type sample func(ctx context.Context) (time.Duration, error)

// series holds the samples of one contestant.
type series struct {
	name   string
	sample sample
	late   []float64 // the p99 of each round, in ms; the first one is of the round that does not count
}

// apart is the time between the beginnings of two successive samples.
const apart = 10 * time.Millisecond

// round takes samples one after the other, appends their p99 to late, and returns their median in ms.
func (x *series) round(ctx context.Context, samples int) (float64, error) {
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
