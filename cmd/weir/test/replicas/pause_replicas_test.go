package replicas

import (
	"fmt"
	"strings"
	"testing"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWhoKeepsSilentIsNamed: a replica that keeps its right to call and does not answer is no success.
func TestWhoKeepsSilentIsNamed(t *testing.T) {
	t.Parallel()
	url := weirtest.OneServer(t)
	r := weirtest.NewReplicas(t, url, 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	member, err := registry.Join(t.Context(), lease.Member{Instance: "mute"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- member.Keep(t.Context(), func(*lease.Member) {}, func() {}) }()
	got := weirtest.Command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "pause", "pay")
	if got.Code != 1 || !strings.Contains(got.Stderr, "mute") || !strings.Contains(got.Stderr, "calls may still start there") {
		t.Errorf("%+v", got)
	}
	select {
	case err := <-ended:
		t.Errorf("the lease of a replica that is there was ended: %v", err)
	default:
	}
}
