package settle

import (
	"net"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"
)

// TestRefusedIntentLetsItsJobRest checks that a job is not called if the stream refuses its intent, because the stream
// holds the epoch of another owner. The job rests, and does not count as intended.
func TestRefusedIntentLetsItsJobRest(t *testing.T) {
	w, p := newOwned(t)
	p.Markers = writing(t, w.Env, w.Queue)
	refused := 0
	p.Intents.Refused = func() { refused++ }
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	w.Terms = w.Env.NewTerms(&httpcall.API{
		Name: "pay", URL: &url.URL{Scheme: "http", Host: silent.Addr().String()}, Timeout: time.Minute, Rule: &ingest.Rule{API: "pay"},
		Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}},
	}, nil)
	w.Sched = schedule.New(w.Terms.Policy, schedule.Pace{MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls}, func(string) bucket.Micros { return 0 })
	w.Mu.Lock()
	w.Sched.Queues.OpenPartition(&p.Partition)
	w.Sched.Push("k", 1, &p.Partition)
	staged := w.Sched.Step(w.Now()).Load
	w.Mu.Unlock()
	if len(staged) != 1 {
		t.Fatalf("%d jobs are made ready", len(staged))
	}
	j := lane.JobLocked(staged[0])
	j.Bind(w.Terms)
	if err := j.Terms.Call.Conns.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bucket.Own(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if await.Result(t, "the intent", func() bool { return p.Intents.Intend(j) }) {
		t.Error("the job may be called")
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if refused != 1 || !j.Rests() || j.Announced.Call != 0 || len(j.Announced.Marks) != 0 {
		t.Errorf("refused %d times, it rests: %v, call %d is intended", refused, j.Rests(), j.Announced.Call)
	}
}
