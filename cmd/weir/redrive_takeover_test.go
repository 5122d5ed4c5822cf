package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/cmd/weir/internal/control"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestRedriveIsTakenOver: of two replicas one works a redrive; when that one is killed the other goes on with it, and no job is called twice.
func TestRedriveIsTakenOver(t *testing.T) {
	t.Parallel()
	const keys, each, capacity = 20, 10, 4 // the capacity stands in the configuration, too
	r := newReplicas(t, oneServer(t), 2, `dead_letters: {max_bytes: 256MiB}
apis:
  pay:
    url: %s/v1
    bucket: {rate: 50/s, capacity: 4, in_flight: 4}
`)
	env := []string{"WEIR_NATS_URL=" + r.nc.ConnectedUrl(), "WEIR_REPLICAS=1"}
	do := func(args ...string) {
		t.Helper()
		if got := command(t, env, args...); got.code != 0 {
			t.Fatalf("weir %v: %+v", args, got)
		}
	}
	task := func() (told control.RedriveTask) {
		t.Helper()
		got := command(t, env, "dead", "task", "night", "--json")
		if err := json.Unmarshal([]byte(got.stdout), &told); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		return told
	}
	do("pause", "pay")
	var jobs []*nats.Msg
	for i := range keys * each {
		jobs = append(jobs, jobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
	}
	fill(t, r.nc, jobs)
	letters := r.letters()
	if letters != keys*(each-capacity) {
		t.Fatalf("%d letters", letters)
	}
	do("resume", "pay")
	do("dead", "redrive", "--yes", "--detach", "--name", "night", "--rate", "30/s")
	await.Until(t, "some letters to go", func() bool { return r.letters() <= letters-10 })
	worker := task().Worker
	killed := strings.TrimPrefix(worker, "replica-")
	if killed != "0" && killed != "1" {
		t.Fatalf("the redrive is worked by %q", worker)
	}
	r.procs[killed[0]-'0'].kill()
	if left := r.letters(); left == 0 {
		t.Fatal("it was not killed half way")
	}
	await.Until(t, "the redrive to be done by the other", func() bool { return task().State == deadletter.TaskDone })
	done := task()
	if done.Worker == worker || done.Total != letters || done.Done != letters {
		t.Errorf("it is %+v, and %s was killed", done, worker)
	}
	r.awaitEmpty()
	r.judgeRedriven(keys * each)
}
