package bench

import (
	"context"

	"weir/cmd/internal/contest"
)

// busyAPIs are called as fast as weir can call. One of them has an idempotency key, the other has none.
const busyAPIs = `apis:
  idempotent:
    url: URL/idempotent
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
  once:
    url: URL/once
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
`

// callsAtOnce is how many calls weir and each reference make at once.
const callsAtOnce = 64

// barePath is the path that the bare loops call.
const barePath = "/bare"

// dispatch measures how many jobs a second reach an API that answers at once.
func dispatch(ctx context.Context, s *stage, r *Report) error {
	w, err := s.serve(ctx, "weir", busyAPIs)
	if err != nil {
		return err
	}
	all := []contestant{
		{"weir, idempotent", w.pids, s.reached(w.producer, "idempotent", "/idempotent")},
		{"weir, not idempotent", w.pids, s.reached(w.producer, "once", "/once")},
	}
	bare, err := s.references(ctx, true, s.loop)
	if err != nil {
		return err
	}
	all = append(all, bare...)
	if s.o.Redis != "" {
		limited, err := s.shared(ctx)
		if err != nil {
			return err
		}
		all = append(all, limited...)
	}
	if r.Contenders, err = s.contest(ctx, "jobs/s", all); err != nil {
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

// loop starts a bare loop and a producer for it.
func (s *stage) loop(ctx context.Context, ref reference) (c contestant, err error) {
	role, subjects := "nats", contest.BareSubject
	if ref.name == floorName {
		role, subjects = keeperRole, relaySubject
		if _, err := s.Role(ctx, relayRole, contest.Settings{Store: ref.url}); err != nil {
			return c, err
		}
	}
	worker, err := s.Role(ctx, role, contest.Settings{Store: ref.url, API: s.api.URL + barePath, AtOnce: callsAtOnce, Worker: true})
	if err != nil {
		return c, err
	}
	if _, err := worker.Order(ctx, contest.Order{Do: "work"}); err != nil {
		return c, err
	}
	producer, err := s.Role(ctx, "nats", contest.Settings{Store: ref.url, Queue: subjects})
	return contestant{ref.name, ref.pids, s.reached(producer, contest.Busy, barePath)}, err
}
