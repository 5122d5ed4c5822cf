package replicas

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"
)

// TestStatusTellsWhoOwnsWhat: of two replicas each partition names the one that dispatches it, as many of each as the replicas say; when one
// stops, the other has them all.
func TestStatusTellsWhoOwnsWhat(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, "dead_letters: {max_bytes: 256MiB}\n"+fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	await.Until(t, "both to own some", func() bool { return shared(statusOf(t, r), 2) })
	r.StopOne(0)
	await.Until(t, "one to own all", func() bool { return shared(statusOf(t, r), 1) })
	if owners := statusOf(t, r).APIs[0].Owners; slices.Contains(owners, "replica-0") {
		t.Errorf("%v", owners)
	}
}

// statusOf returns what weir says of replicas.
func statusOf(t *testing.T, r *weirtest.Replicas) (s status.Status) {
	got := program.Command(t, []string{"WEIR_NATS_URL=" + r.NC.ConnectedUrl()}, "status", "--json")
	if err := json.Unmarshal([]byte(got.Stdout), &s); err != nil {
		t.Fatalf("%+v: %v", got, err)
	}
	return s
}

// shared reports whether so many replicas own all partitions, and each of them some.
func shared(s status.Status, replicas int) bool {
	if len(s.Replicas) != replicas || len(s.APIs) != 1 || s.APIs[0].Owned != s.APIs[0].Partitions {
		return false
	}
	for _, replica := range s.Replicas {
		n := 0
		for _, owner := range s.APIs[0].Owners {
			if owner == replica.Instance {
				n++
			}
		}
		if n == 0 || n != replica.Owned {
			return false
		}
	}
	return !slices.Contains(s.APIs[0].Owners, "")
}
