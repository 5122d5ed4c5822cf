package dispatcher

import (
	"context"
	"fmt"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/dispatcher/ownership"
)

// host works the partitions that this replica gets: it is the dispatcher as ownership sees it.
type host struct{ d *Dispatcher }

var _ ownership.Host = host{}

func (h host) Partitions() map[string]int {
	n := map[string]int{}
	for _, l := range h.d.lanesNow() {
		n[l.name] = len(l.parts)
	}
	return n
}

func (h host) Rules() map[string]bucket.Rules {
	rules := map[string]bucket.Rules{}
	for _, l := range h.d.lanesNow() {
		l.mu.Lock()
		rules[l.name] = l.terms.api.Rules
		l.mu.Unlock()
	}
	return rules
}

func (h host) Open(ctx, hard context.Context, p lease.PartitionID, t ownership.Tenure) error {
	l := h.d.lane(p.API)
	if l == nil {
		return fmt.Errorf("%s: %w", p, ErrNoAPI)
	}
	return l.openPart(ctx, hard, p.Number, t)
}

func (h host) Close(ctx context.Context, id lease.PartitionID) error {
	if l, p := h.part(id); p != nil {
		return l.closePart(ctx, p)
	}
	return nil
}

func (h host) Lose(id lease.PartitionID) {
	if l, p := h.part(id); p != nil {
		l.losePart(p)
	}
}

func (h host) LoseAll(lease *lease.Membership) {
	for _, l := range h.d.lanesNow() {
		l.loseAll(lease)
	}
}

func (h host) part(id lease.PartitionID) (*lane, *part) {
	l := h.d.lane(id.API)
	if l == nil {
		return nil, nil
	}
	return l, l.part(id.Number)
}
