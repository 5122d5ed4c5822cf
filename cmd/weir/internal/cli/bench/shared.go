package bench

import (
	"context"
	"fmt"
)

// limitedAPI has a shared limit that counts each call and holds none back.
const limitedAPI = `apis:
  limited:
    url: URL/limited
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
    limits:
      - {name: account, in_flight: 100000}
`

// shared starts two weirs with the same shared limit, each with a server of its own. One counts the limit in its
// process, the other in Redis.
func (s *stage) shared(ctx context.Context) (both []contestant, err error) {
	for _, where := range []struct {
		name, dir string
		env       []string
	}{
		{"weir, limits in the process", "in-process", nil},
		{"weir, limits in Redis", "in-redis", []string{"WEIR_REDIS_URL=" + s.o.Redis}},
	} {
		w, err := s.serve(ctx, where.dir, limitedAPI, where.env...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where.name, err)
		}
		both = append(both, contestant{where.name, w.pids, s.reached(w.producer, "limited", "/limited")})
	}
	return both, nil
}
