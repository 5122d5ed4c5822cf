package recovery

import (
	"testing"

	"weir/bucket/lease"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitView waits until the only replica knows who else dispatches, and stores a record beside its result where nobody does: it has renewed
// its lease after it had seen all others, and once more.
func awaitView(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	await.Until(t, "three renewals of the only replica", func() bool {
		members, err := registry.Members(t.Context())
		if err == nil && len(members) == 1 {
			seen[members[0].Revision] = true
		}
		return len(seen) > 2
	})
}
