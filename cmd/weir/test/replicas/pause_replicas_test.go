package replicas

import (
	"fmt"
	"strings"
	"testing"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestPauseReachesAStoppedReplica: what is paused while a replica is stopped is not called by it when it goes on, and the
// command says so before it ends.
func TestPauseReachesAStoppedReplica(t *testing.T) {
	t.Parallel()
	url := weirtest.OneServer(t)
	r := weirtest.NewReplicas(t, url, 2, fmt.Sprintf(strings.Replace(weirtest.ReplicaAPI, "rate: 50/s", "rate: 5/s", 1), weirtest.NotIdempotent))
	var jobs []*nats.Msg
	for n := range 400 {
		jobs = append(jobs, weirtest.JobFor("pay", fmt.Sprint("k", n%8), fmt.Sprint("job-", n)))
	}
	r.FillPaused(jobs)
	r.AwaitCalls(t.Context(), 50)
	r.Signal(0, weirtest.Freezes)
	env := []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}
	got := weirtest.Command(t, env, "pause", "pay")
	if got.Code != 0 || !strings.Contains(got.Stderr, "1 dispatching replica has it in force; 1 replica did not answer, and may call nothing before it has heard of it: replica-0") {
		t.Errorf("%+v", got)
	}
	before := len(r.API.All())
	r.Signal(0, weirtest.Thaws)
	(&weirtest.Rig{T: t}).Eventually("both replicas to answer", func() bool {
		return strings.Contains(weirtest.Command(t, env, "pause", "pay").Stderr, "2 dispatching replicas have it in force")
	})
	if n := len(r.API.All()); n != before {
		t.Errorf("%d calls started after the pause", n-before)
	}
}

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
