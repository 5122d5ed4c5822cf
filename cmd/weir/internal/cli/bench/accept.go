package bench

import (
	"context"
	"strconv"

	"weir/cmd/internal/contest"
)

// waitingAPI is an API whose jobs wait, because each key is called once a day.
const waitingAPI = `apis:
  waiting:
    url: URL
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1/24h, capacity: 10000000}
`

// accept measures how many jobs a second weir accepts. A producer publishes them asynchronously, 4,000 at once, until
// the last job is acknowledged. Another producer publishes the same jobs in batches.
func accept(ctx context.Context, s *stage, r *Report) error {
	w, err := s.serve(ctx, "weir", waitingAPI)
	if err != nil {
		return err
	}
	all, err := s.references(ctx, true, func(ctx context.Context, ref reference) (c contestant, err error) {
		subjects := contest.BareSubject
		if ref.name == floorName {
			subjects = relaySubject
			if _, err := s.Role(ctx, relayRole, contest.Settings{Store: ref.url}); err != nil {
				return c, err
			}
		}
		js, err := s.connect(ref.url)
		if err != nil {
			return c, err
		}
		if err := contest.BareStreams(ctx, js, 1); err != nil {
			return c, err
		}
		producer, err := s.Role(ctx, "nats", contest.Settings{Store: ref.url, Queue: subjects})
		return contestant{ref.name, ref.pids, s.taken(producer, contest.Waiting)}, err
	})
	if err != nil {
		return err
	}
	batches, err := s.Role(ctx, batcherRole, contest.Settings{Store: w.url, Queue: "weir.jobs"})
	if err != nil {
		return err
	}
	all = append([]contestant{
		{"weir", w.pids, s.taken(w.producer, "waiting")},
		{"weir, batches of " + strconv.Itoa(batchJobs), w.pids, s.taken(batches, "waiting")},
	}, all...)
	if r.Contenders, err = s.contest(ctx, "jobs/s", all); err != nil {
		return err
	}
	for _, weir := range r.Contenders[:2] {
		for _, c := range r.Contenders[2:] {
			r.Ratios = append(r.Ratios, ratio(weir, c))
		}
	}
	return nil
}

// reference is a server for a bare contestant.
type reference struct {
	name, url string
	pids      []int // ids of its process, if the measurement started it
}

// references makes the bare contestants, each on a server of its own. The server of the first syncs every write, and
// the server of the second does not. If floor is true, a third contestant sends and stores the same messages as weir.
// If the bench uses a server that it did not start, references makes only one contestant, on that server.
func (s *stage) references(
	ctx context.Context, floor bool, on func(ctx context.Context, ref reference) (contestant, error),
) (all []contestant, err error) {
	refs := []struct{ name, durability string }{
		{"bare, every write synced", "always"}, {"bare, without fsync", "interval"}, {floorName, "interval"},
	}
	if !floor {
		refs = refs[:2]
	}
	if s.borrowed() {
		same, err := on(ctx, reference{name: "bare, same server", url: s.o.Server})
		return []contestant{same}, err
	}
	for i, r := range refs {
		url, server, err := s.Server(ctx, "bare-"+strconv.Itoa(i), r.durability)
		if err != nil {
			return nil, err
		}
		c, err := on(ctx, reference{r.name, url, []int{server.PID()}})
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}
