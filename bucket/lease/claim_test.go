package lease

import (
	"errors"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/bucket/stream"
)

// TestUnreadableClaim checks that a claim stays valid if its server cannot read it. No replica takes the partition for
// one that was never claimed, and the error says what to do.
func TestUnreadableClaim(t *testing.T) {
	const session = "the session of its owner"
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	r, err := OpenRegistry(t.Context(), natstest.Connect(t, ns), 1)
	if err != nil {
		t.Fatal(err)
	}
	p, other := PartitionID{API: "pay", Number: 3}, PartitionID{API: "pay", Number: 4}
	if _, err := r.Claim(t.Context(), p, session, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(t.Context(), p, "another", 0); !errors.Is(err, stream.ErrStale) {
		t.Errorf("beside its owner: %v", err)
	}
	if _, err := r.Join(t.Context(), Member{Instance: "weir-0"}); err != nil { // a message after the claim
		t.Fatal(err)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	natstest.Spoil(t, dir, leasesStream, session)
	if r, err = OpenRegistry(t.Context(), natstest.Connect(t, natstest.Start(t, dir, 0)), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(t.Context(), p, "another", 0); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "nats kv del weir_leases") {
		t.Errorf("beside an owner whose claim cannot be read: %v", err)
	}
	if _, err := r.Claim(t.Context(), other, "another", 0); err != nil {
		t.Errorf("another partition: %v", err)
	}
	if err := r.js.DeleteKeyValue(t.Context(), LeasesBucket); err != nil {
		t.Fatal(err)
	}
	if r, err = OpenRegistry(t.Context(), r.js, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(t.Context(), p, "another", 0); err != nil {
		t.Errorf("in another bucket: %v", err)
	}
}
