package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMoveFromUnderAStoppedReplica: a replica that is stopped while its jobs are moved away calls none of them when it goes
// on. It ends.
func TestMoveFromUnderAStoppedReplica(t *testing.T) {
	t.Parallel()
	url := servers.StartTarget(t)
	r := weirtest.NewReplicas(t, url, 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	var jobs []*nats.Msg
	for n := range 1000 {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", n%2), fmt.Sprint("job-", n)))
	}
	r.FillPaused(jobs)
	r.AwaitCalls(t.Context(), 10)
	r.Signal(0, program.Freezes)
	before := len(r.API.All())
	if before > len(jobs)*3/4 {
		t.Fatalf("%d of %d jobs were called before the replica was stopped: that would prove nothing", before, len(jobs))
	}
	got := program.Command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", url, "--to", servers.StartTarget(t))
	if got.Code != 0 {
		t.Errorf("the move ended with %+v", got)
	}
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := registry.Watch(ctx, func(s lease.Sighting) {
		switch {
		case s.Member != nil:
			t.Errorf("%s may still renew its lease", s.Member.Instance)
		case s.Session == "" && s.Partition == nil:
			stop()
		}
	}); err != nil {
		t.Error(err)
	}
	r.Signal(0, program.Thaws)
	select {
	case <-r.Procs[0].Exited:
	case <-time.After(weirtest.Patience):
		t.Error("the replica of the old server works on")
	}
	if n := len(r.API.All()); n > before+8 { // in_flight of both keys
		t.Errorf("%d calls before the move, %d after it by the replica of the old server", before, n-before)
	}
}

// TestLateIntakeIsRefused: an intake that was stopped while the jobs were moved away tells a producer of the old server that
// nothing was kept.
func TestLateIntakeIsRefused(t *testing.T) {
	t.Parallel()
	url := servers.StartTarget(t)
	r := weirtest.NewReplicas(t, url, 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	for n := range 20 {
		r.Publish(await.Context(t, "a receipt"), fmt.Sprintf("weir.jobs.pay.k%d", n), fmt.Sprintf("job-%d", n), nil)
	}
	r.Signal(0, program.Freezes)
	if got := program.Command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", url, "--to", servers.StartTarget(t)); got.Code != 0 {
		t.Fatalf("the move ended with %+v", got)
	}
	answers, err := r.NC.SubscribeSync("late.*")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if err := r.NC.PublishRequest(fmt.Sprintf("weir.jobs.pay.k%d", n), fmt.Sprintf("late.%d", n), []byte("late")); err != nil {
			t.Fatal(err)
		}
	}
	r.Signal(0, program.Thaws)
	for range 20 {
		msg, err := answers.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var a producer.Answer
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			t.Fatal(err)
		}
		if a.Error == nil || a.Error.Code != 503 {
			t.Errorf("a late job is answered: %s", msg.Data)
		}
	}
}
