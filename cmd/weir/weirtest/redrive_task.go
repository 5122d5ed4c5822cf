package weirtest

import (
	"encoding/json"
	"fmt"
	"time"

	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Task returns the state of a redrive.
func (r *Rig) Task(name string) deadview.RedriveTask {
	r.T.Helper()
	out, code := r.Command("dead", "task", name, "--json")
	var told deadview.RedriveTask
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != 0 {
		r.T.Fatalf("%s: exit code %d, %v", out, code, err)
	}
	return told
}

// Overflowed fills the buckets of several keys during a pause, and returns the number of letters.
func (r *Rig) Overflowed(api string, keys, each int) int {
	r.T.Helper()
	r.WhilePaused(func() {
		var jobs []*nats.Msg
		for i := range keys * each {
			jobs = append(jobs, JobFor(api, fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
		}
		Fill(r.T, r.NC, jobs)
	})
	r.Eventually("an empty queue", func() bool { return r.Waiting(api) == 0 })
	return r.LetterCount()
}

// JudgeRedriven checks that no job was called twice, and that each job without a call has a letter. Such a job's call
// was left unknown by a kill, or the job overflowed again.
func (r *KillRig) JudgeRedriven(jobs int) {
	r.T.Helper()
	calls := map[string]int{}
	for _, a := range r.API.All() {
		calls[string(a.Body)]++
	}
	for body, n := range calls {
		if n != 1 {
			r.T.Errorf("%s was called %d times", body, n)
		}
	}
	if missing := jobs - len(calls); missing > r.Letters() {
		r.T.Errorf("%d of %d jobs were called, and %d letters are left", len(calls), jobs, r.Letters())
	}
}

// Letters returns the number of letters.
func (r *KillRig) Letters() int {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	for deadline := time.Now().Add(Patience); ; {
		s, err := js.Stream(r.T.Context(), deadletter.Stream)
		if err == nil {
			return int(s.CachedInfo().State.Msgs)
		}
		if time.Now().After(deadline) {
			r.T.Fatal(err)
		}
	}
}
