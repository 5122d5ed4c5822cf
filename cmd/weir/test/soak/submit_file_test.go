package soak

import (
	"bytes"
	"flag"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/referee"
	"weir/ingest/await"
)

// submitJobs is how many jobs the killed runs submit: -args -submit-jobs 100000 for a long look.
var submitJobs = flag.Int("submit-jobs", 6000, "jobs of the file whose runs are killed")

// TestSubmitFileKilledAndResumed: a run over a file that is killed twice and begun again has every job called once.
func TestSubmitFileKilledAndResumed(t *testing.T) {
	t.Parallel()
	jobs := *submitJobs
	r := weirtest.NewRig(t, fakeapi.Options{}, producer.ManyJobsYAML)
	file := producer.JobsFile(t, jobs)
	began := time.Now()
	for _, upTo := range []int{jobs / 10, jobs / 2} {
		r.CLI().KillSubmission(file, upTo)
	}
	var out bytes.Buffer
	if err := await.Result(t, "the last run", r.CLI().SubmitFile(&out, file, "credit").Wait); err != nil {
		t.Fatalf("the last run: %v\n%s", err, out.String())
	}
	t.Logf("after %s: %s", time.Since(began), out.String())
	calls := r.AwaitCalls(jobs)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	referee.CalledOnce(t, calls, jobs)
}
