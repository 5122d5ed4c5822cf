package main

import (
	"fmt"
	"strings"
	"testing"

	"weir/bucket/lease"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestPauseReachesAStoppedReplica: what is paused while a replica is stopped is not called by it when it goes on, and the
// command says so before it ends.
func TestPauseReachesAStoppedReplica(t *testing.T) {
	t.Parallel()
	url := oneServer(t)
	r := newReplicas(t, url, 2, fmt.Sprintf(strings.Replace(replicaAPI, "rate: 50/s", "rate: 5/s", 1), notIdempotent))
	var jobs []*nats.Msg
	for n := range 400 {
		jobs = append(jobs, jobFor("pay", fmt.Sprint("k", n%8), fmt.Sprint("job-", n)))
	}
	r.fillPaused(jobs)
	r.awaitCalls(t.Context(), 50)
	r.signal(0, freezes)
	env := []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}
	got := command(t, env, "pause", "pay")
	if got.code != 0 || !strings.Contains(got.stderr, "1 dispatching replica has it in force; 1 replica did not answer, and may call nothing before it has heard of it: replica-0") {
		t.Errorf("%+v", got)
	}
	before := len(r.api.All())
	r.signal(0, thaws)
	(&rig{t: t}).eventually("both replicas to answer", func() bool {
		return strings.Contains(command(t, env, "pause", "pay").stderr, "2 dispatching replicas have it in force")
	})
	if n := len(r.api.All()); n != before {
		t.Errorf("%d calls started after the pause", n-before)
	}
}

// TestWhoKeepsSilentIsNamed: a replica that keeps its right to call and does not answer is no success.
func TestWhoKeepsSilentIsNamed(t *testing.T) {
	t.Parallel()
	url := oneServer(t)
	r := newReplicas(t, url, 1, fmt.Sprintf(replicaAPI, notIdempotent))
	js, err := jetstream.New(r.nc)
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
	go func() { ended <- member.Keep(t.Context(), func(*lease.Member) {}, func(lease.Renewal) {}) }()
	got := command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "pause", "pay")
	if got.code != 1 || !strings.Contains(got.stderr, "mute") || !strings.Contains(got.stderr, "calls may still start there") {
		t.Errorf("%+v", got)
	}
	select {
	case err := <-ended:
		t.Errorf("the lease of a replica that is there was ended: %v", err)
	default:
	}
}
