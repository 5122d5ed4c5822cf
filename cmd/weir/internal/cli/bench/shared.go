package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// limitedAPI has a limit that each call counts in, and that holds none of them up.
const limitedAPI = `apis:
  limited:
    url: URL
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
    limits:
      - {name: account, in_flight: 100000}
`

// shared are two weirs with the same shared limit, each with a server of its own: one counts it in the process, one in Redis.
func (s *stage) shared(ctx context.Context) ([]contestant, error) {
	var both []contestant
	for _, where := range []struct {
		name, dir string
		env       []string
	}{
		{"weir, limits in the process", "in-process", nil},
		{"weir, limits in Redis", "in-redis", []string{"WEIR_REDIS_URL=" + s.o.Redis}},
	} {
		one := &stage{o: s.o, dir: filepath.Join(s.dir, where.dir), sink: s.sink, env: where.env, fail: s.fail}
		s.later(one.close)
		if err := os.Mkdir(one.dir, 0o700); err != nil {
			return nil, fmt.Errorf("a directory for the measurement: %w", err)
		}
		if err := one.serve(ctx, limitedAPI); err != nil {
			return nil, fmt.Errorf("%s: %w", where.name, err)
		}
		both = append(both, contestant{where.name, one.pids, one.called("weir.jobs.limited", one.js)})
	}
	return both, nil
}
