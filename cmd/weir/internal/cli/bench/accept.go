package bench

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// waitingAPI is one whose jobs wait: each key is called once a day.
const waitingAPI = `apis:
  waiting:
    url: URL
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1/24h, capacity: 10000000}
`

// accept is how many jobs a second are taken: published asynchronously, 4,000 under way, until the last is acknowledged.
func accept(ctx context.Context, s *stage, r *Report) error {
	if err := s.serve(ctx, waitingAPI); err != nil {
		return err
	}
	contestants := []contestant{{"weir", s.pids, func(ctx context.Context, jobs int) (float64, error) {
		return timed(ctx, jobs, func(ctx context.Context) error {
			return load{subject: "weir.jobs.waiting", jobs: jobs, keys: s.o.Keys, body: s.o.Body}.publish(ctx, s.js)
		})
	}}}
	bare, err := s.references(ctx, true, func(ctx context.Context, name string, js jetstream.JetStream, pids []int) (contestant, error) {
		if err := bareStreamOn(ctx, js, jetstream.LimitsPolicy); err != nil {
			return contestant{}, err
		}
		subject := bareSubject
		if name == floorName {
			subject = relaySubject
			if err := s.relay(js); err != nil {
				return contestant{}, err
			}
		}
		return contestant{name, pids, func(ctx context.Context, jobs int) (float64, error) {
			return timed(ctx, jobs, func(ctx context.Context) error {
				return load{subject: subject, jobs: jobs, keys: s.o.Keys, body: s.o.Body}.publish(ctx, js)
			})
		}}, nil
	})
	if err != nil {
		return err
	}
	if r.Contenders, err = s.contest(ctx, "jobs/s", append(contestants, bare...)); err != nil {
		return err
	}
	for _, c := range r.Contenders[1:] {
		r.Ratios = append(r.Ratios, ratio(r.Contenders[0], c))
	}
	return nil
}

// references are bare contestants: on servers of their own, one that syncs every write and one that does not; or, beside a server that is
// not the bench's, on that one. With a floor there is one more, which sends and stores the same messages as weir.
func (s *stage) references(
	ctx context.Context, floor bool, on func(ctx context.Context, name string, js jetstream.JetStream, pids []int) (contestant, error),
) (all []contestant, err error) {
	if s.o.Server != Inside && s.o.Server != Beside {
		same, err := on(ctx, "bare, same server", s.js, nil)
		return []contestant{same}, err
	}
	references := []struct{ name, durability string }{{"bare, every write synced", "always"}, {"bare, without fsync", "interval"}}
	if floor {
		references = append(references, struct{ name, durability string }{floorName, "interval"})
	}
	for i, reference := range references {
		url, pid, err := s.server(ctx, "bare-"+strconv.Itoa(i), reference.durability)
		if err != nil {
			return nil, err
		}
		nc, js, err := connect(url)
		if err != nil {
			return nil, err
		}
		s.later(func() error { nc.Close(); return nil })
		c, err := on(ctx, reference.name, js, []int{pid})
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}
