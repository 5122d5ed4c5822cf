package soak

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestRedriveIsTakenOver: of two replicas one works a redrive; when that one is killed the other goes on with it, and no job is called twice.
func TestRedriveIsTakenOver(t *testing.T) {
	t.Parallel()
	const keys, each, capacity = 20, 10, 4 // the capacity stands in the configuration, too
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, `dead_letters: {max_bytes: 256MiB}
apis:
  pay:
    url: %s/v1
    bucket: {rate: 50/s, capacity: 4, in_flight: 4}
`)
	env := []string{"WEIR_NATS_URL=" + r.NC.ConnectedUrl(), "WEIR_REPLICAS=1"}
	do := func(args ...string) {
		t.Helper()
		if got := program.Command(t, env, args...); got.Code != 0 {
			t.Fatalf("weir %v: %+v", args, got)
		}
	}
	task := func() (told deadview.RedriveTask) {
		t.Helper()
		got := program.Command(t, env, "dead", "task", "night", "--json")
		if err := json.Unmarshal([]byte(got.Stdout), &told); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		return told
	}
	do("pause", "pay")
	var jobs []*nats.Msg
	for i := range keys * each {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
	}
	producer.Fill(t, r.NC, jobs)
	letters := r.Letters()
	if letters != keys*(each-capacity) {
		t.Fatalf("%d letters", letters)
	}
	do("resume", "pay")
	do("dead", "redrive", "--yes", "--detach", "--name", "night", "--rate", "30/s")
	await.Until(t, "some letters to go", func() bool { return r.Letters() <= letters-10 })
	worker := task().Worker
	killed := strings.TrimPrefix(worker, "replica-")
	if killed != "0" && killed != "1" {
		t.Fatalf("the redrive is worked by %q", worker)
	}
	r.Procs[killed[0]-'0'].Kill()
	if left := r.Letters(); left == 0 {
		t.Fatal("it was not killed half way")
	}
	await.Until(t, "the redrive to be done by the other", func() bool { return task().State == deadletter.TaskDone })
	done := task()
	if done.Worker == worker || done.Total != letters || done.Done != letters {
		t.Errorf("it is %+v, and %s was killed", done, worker)
	}
	r.AwaitEmpty()
	r.JudgeRedriven(keys * each)
}
