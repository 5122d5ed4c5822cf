package ingest

import "sync"

// tally counts by api. It is safe for concurrent use. It holds one number for each api that was counted.
type tally struct {
	mu    sync.Mutex
	count map[string]uint64
}

func (t *tally) add(api string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]uint64{}
	}
	t.count[api]++
}

// Throttled returns how many jobs of an api this service has refused since its start because their bucket was full,
// they would have been late, or an admission limit refused them. weir_jobs_throttled_total counts the same.
func (s *Service) Throttled(api string) uint64 {
	s.throttled.mu.Lock()
	defer s.throttled.mu.Unlock()
	return s.throttled.count[api]
}
