package soak

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"

	"github.com/nats-io/nats.go"
)

// TestPauseReachesAStoppedReplica: what is paused while a replica is stopped is not called by it when it goes on, and the
// command says so before it ends.
func TestPauseReachesAStoppedReplica(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	r := weirtest.NewReplicas(t, url, 2, fmt.Sprintf(strings.Replace(weirtest.ReplicaAPI, "rate: 50/s", "rate: 5/s", 1), weirtest.NotIdempotent))
	var jobs []*nats.Msg
	for n := range 400 {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", n%8), fmt.Sprint("job-", n)))
	}
	r.FillPaused(jobs)
	r.AwaitCalls(t.Context(), 50)
	r.Signal(0, program.Freezes)
	env := []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}
	got := program.Command(t, env, "pause", "pay")
	if got.Code != 0 || !strings.Contains(got.Stderr, "1 dispatching replica has it in force; 1 replica did not answer, and may call nothing before it has heard of it: replica-0") {
		t.Errorf("%+v", got)
	}
	before := len(r.API.All())
	r.Signal(0, program.Thaws)
	(&weirtest.Rig{T: t}).Eventually("both replicas to answer", func() bool {
		return strings.Contains(program.Command(t, env, "pause", "pay").Stderr, "2 dispatching replicas have it in force")
	})
	if n := len(r.API.All()); n != before {
		t.Errorf("%d calls started after the pause", n-before)
	}
}
