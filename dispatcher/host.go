package dispatcher

import (
	"context"
	"fmt"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
)

// host implements ownership.Host: it works the partitions that this replica gets.
type host struct{ d *Dispatcher }

var _ ownership.Host = host{}

func (h host) Partitions() map[string]int {
	n := map[string]int{}
	for _, w := range h.d.workersNow() {
		n[w.Name] = len(w.Partitions)
	}
	return n
}

func (h host) Rules() map[string]bucket.Rules {
	rules := map[string]bucket.Rules{}
	for _, w := range h.d.workersNow() {
		w.Mu.Lock()
		rules[w.Name] = w.Terms.API.Rules
		w.Mu.Unlock()
	}
	return rules
}

func (h host) Open(ctx, hard context.Context, p lease.PartitionID, t ownership.Tenure) error {
	w := h.d.worker(p.API)
	if w == nil {
		return fmt.Errorf("%s: %w", p, lane.ErrNoAPI)
	}
	return w.openPartition(ctx, hard, p.Number, t)
}

func (h host) Close(ctx context.Context, id lease.PartitionID) error {
	if p := h.part(id); p != nil {
		return p.close(ctx)
	}
	return nil
}

func (h host) Lose(id lease.PartitionID) {
	if p := h.part(id); p != nil {
		p.lose()
	}
}

func (h host) LoseAll(lease *lease.Membership) {
	for _, w := range h.d.workersNow() {
		w.loseAll(lease)
	}
}

// part returns this process's tenure of a partition, nil if there is none.
func (h host) part(id lease.PartitionID) *tenancy {
	if w := h.d.worker(id.API); w != nil {
		return w.tenancyOf(id.Number)
	}
	return nil
}
