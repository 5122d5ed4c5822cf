package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/bucket/natstest"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLeaseEndsBeforeItIsTaken checks that a holder no longer acts when another process may take its lease, even if
// their clocks run apart by a fourth.
func TestLeaseEndsBeforeItIsTaken(t *testing.T) {
	validFor := func(d time.Duration) bool {
		l := &Lease{}
		l.renewed.Store(new(time.Now().Add(-d)))
		return l.Valid()
	}
	const tick = 100 * time.Millisecond
	acts := tick
	for validFor(acts) && acts < 2*leaseTerm {
		acts += tick
	}
	seen := time.Now()
	if by := acts + acts/4; acts < 2*leaseRenew || expired(seen, seen.Add(by)) {
		t.Errorf("the holder acts for %s, renews every %s, and by a clock that is a fourth faster its lease is taken after %s",
			acts, leaseRenew, by)
	}
	if !expired(seen, seen.Add(2*leaseTerm)) {
		t.Error("a lease that nobody renews is never taken")
	}
}

// hearing is a key-value bucket that notes when an update is requested, and advances the clock before it answers.
type hearing struct {
	jetstream.KeyValue
	asked time.Time
}

func (h *hearing) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	h.asked = time.Now()
	revision, err := h.KeyValue.Update(ctx, key, value, last)
	for !time.Now().After(h.asked) {
	}
	return revision, err
}

// TestRenewalCountsFromItsAsking checks that a renewal counts from when it was requested. Other processes may see the
// renewal as early as that, and count from then on.
func TestRenewalCountsFromItsAsking(t *testing.T) {
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "leases"})
	if err != nil {
		t.Fatal(err)
	}
	heard := &hearing{KeyValue: kv}
	l, err := AcquireLease(t.Context(), js.Conn(), heard, "one", "weir-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if renewed := *l.renewed.Load(); renewed.After(heard.asked) {
		t.Errorf("it counts from %s after it was asked for", renewed.Sub(heard.asked))
	}
}

// TestLeaseBesideAReplicaThatLags checks that a lease counts as lost only by what the stream's leader has. A renewal
// whose answer was lost is no loss, although a replica that lags has no lease.
func TestLeaseBesideAReplicaThatLags(t *testing.T) {
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "leases"})
	if err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, js, "KV_leases")
	l, err := AcquireLease(t.Context(), js.Conn(), kv, "one", "weir-0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), l.key, l.value); err != nil {
		t.Fatal(err)
	}
	if err := l.renew(t.Context()); err == nil || errors.Is(err, ErrLeaseLost) {
		t.Errorf("after a renewal without an answer: %v", err)
	}
	if err := l.renew(t.Context()); err != nil {
		t.Errorf("the next renewal: %v", err)
	}
	if err := kv.Delete(t.Context(), l.key); err != nil {
		t.Fatal(err)
	}
	if err := l.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("after the lease was deleted: %v", err)
	}
}
