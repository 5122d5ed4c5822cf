package replicas

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWhoKeepsSilentIsNamed: a replica that keeps its right to call and does not answer is no success. A machine that
// delays its renewals for too long takes the right away; then the command is repeated.
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
	var gaps longestGap
	go func() { ended <- member.Keep(t.Context(), func(*lease.Member) {}, gaps.pass) }()
	var got weirtest.Ended
	for tries := 0; ; tries++ {
		gaps.begin()
		got = weirtest.Command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "pause", "pay")
		if gap := gaps.end(); gap < lease.Right {
			break
		} else if tries == 10 {
			t.Fatalf("renewals are %s apart at worst, each time", gap)
		}
	}
	if got.Code != 1 || !strings.Contains(got.Stderr, "mute") || !strings.Contains(got.Stderr, "calls may still start there") {
		t.Errorf("%+v", got)
	}
	select {
	case err := <-ended:
		t.Errorf("the lease of a replica that is there was ended: %v", err)
	default:
	}
}

// longestGap measures the longest time between two passes.
type longestGap struct {
	mu   sync.Mutex
	last time.Time
	most time.Duration
}

func (g *longestGap) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.most = time.Now(), 0
}

func (g *longestGap) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.most = time.Now(), max(g.most, time.Since(g.last))
}

func (g *longestGap) end() time.Duration {
	g.pass()
	return g.most
}
