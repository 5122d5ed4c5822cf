package bench

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// busyAPIs are called as fast as weir can: one with an idempotency key, one without.
const busyAPIs = `apis:
  idempotent:
    url: URL
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
  once:
    url: URL
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
`

// dispatch is how many jobs a second go from a producer to the API, which answers at once.
func dispatch(ctx context.Context, s *stage, r *Report) error {
	if err := s.serve(ctx, busyAPIs); err != nil {
		return err
	}
	contestants := []contestant{
		{"weir, idempotent", s.pids, s.called("weir.jobs.idempotent", s.js)},
		{"weir, not idempotent", s.pids, s.called("weir.jobs.once", s.js)},
	}
	bare, err := s.references(ctx, true, func(ctx context.Context, name string, js jetstream.JetStream, pids []int) (contestant, error) {
		loop, err := newBareLoop(ctx, js, s.sink.url)
		if err != nil {
			return contestant{}, err
		}
		subject := bareSubject
		if name == floorName {
			subject = relaySubject
			if loop.keep, err = keeper(ctx, js); err != nil {
				return contestant{}, err
			}
			if err := s.relay(js); err != nil {
				return contestant{}, err
			}
		}
		stop, err := loop.run(ctx)
		if err != nil {
			return contestant{}, err
		}
		s.later(func() error { stop(); return nil })
		return contestant{name, pids, s.called(subject, js)}, nil
	})
	if err != nil {
		return err
	}
	contestants = append(contestants, bare...)
	if s.o.Redis != "" {
		limited, err := s.shared(ctx)
		if err != nil {
			return err
		}
		contestants = append(contestants, limited...)
	}
	if r.Contenders, err = s.contest(ctx, "jobs/s", contestants); err != nil {
		return err
	}
	for _, c := range r.Contenders[2 : 2+len(bare)] {
		r.Ratios = append(r.Ratios, ratio(r.Contenders[0], c))
	}
	r.Ratios = append(r.Ratios, ratio(r.Contenders[1], r.Contenders[0]))
	if limited := r.Contenders[2+len(bare):]; len(limited) == 2 {
		r.Ratios = append(r.Ratios, ratio(limited[1], limited[0]))
	}
	return nil
}

// called publishes jobs and waits until the API has had them.
func (s *stage) called(subject string, js jetstream.JetStream) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, jobs int) (float64, error) {
		until := s.sink.calls.Load() + int64(jobs)
		return timed(ctx, jobs, func(ctx context.Context) error {
			l := load{subject: subject, jobs: jobs, keys: min(s.o.Keys, busyKeys), body: s.o.Body}
			if err := l.publish(ctx, js); err != nil {
				return err
			}
			return s.sink.await(ctx, until)
		})
	}
}

// busyKeys are the keys of the jobs that are called, at most.
const busyKeys = 1000
