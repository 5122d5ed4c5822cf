package recovery

import (
	"strings"
	"testing"

	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// answeredOnce is a weir whose api has answered one job, whose answer other jobs may get.
func answeredOnce(t *testing.T) (*flightRig, jetstream.JetStream) {
	t.Helper()
	r := flightRigOf(t, "    reuse: {for: 1h}\n")
	close(r.answer)
	r.Publish(t.Context(), "weir.jobs.pay.good", "one", []byte("the question"))
	r.AwaitEmpty()
	return r, servers.JetStreamOf(t, r.NC)
}

// refuse lets a stream take nothing, and returns what lets it take messages again. A start does that, too.
func refuse(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Subjects = []string{"nobody.writes.here"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// resultsOf returns how many results each job has.
func resultsOf(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	n := map[string]int{}
	_, err := ledger.NewestResults(t.Context(), js, ledger.ResultFilter{API: "pay"}, 0, func(r ledger.Result) error {
		n[r.Job]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKilledWithAnotherJobsAnswer: weir is killed when a job has the answer of another one as its result, and no
// record. It ends with that result: it is not called, and its record costs nothing. A second kill changes nothing.
func TestKilledWithAnotherJobsAnswer(t *testing.T) {
	t.Parallel()
	r, js := answeredOnce(t)
	refuse(t, js, ledger.CallsStream)
	r.Publish(t.Context(), "weir.jobs.pay.good", "two", []byte("the question"))
	await.Until(t, "the second result", func() bool { return resultsOf(t, js)["two"] == 1 })
	r.Proc.Kill()
	r.Start()
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if n := len(r.API.All()); n != 1 {
		t.Errorf("%d calls", n)
	}
	if n := resultsOf(t, js); n["one"] != 1 || n["two"] != 1 {
		t.Errorf("results: %v", n)
	}
	records := store.RecordsOf(t, js)
	if len(records) != 2 {
		t.Fatalf("%+v", records)
	}
	if c := records[1]; c.Outcome != ledger.Reused || !c.Final || c.Job != "two" || c.ReusedFrom != "one" || c.Call != 0 || c.Price != "0.00" || c.Saved != "0.40" || c.TAT == 0 {
		t.Errorf("%+v", c)
	}
	if got := program.Command(t, r.Env, "spend"); got.Code != 0 || !strings.Contains(got.Stdout, "REUSED") {
		t.Errorf("%+v", got)
	}
}

// TestKilledBeforeAnotherJobsAnswer: weir is killed when it has decided that a job ends with the answer of another one,
// and the result is not stored. The job waits again, and ends once.
func TestKilledBeforeAnotherJobsAnswer(t *testing.T) {
	t.Parallel()
	r, js := answeredOnce(t)
	refuse(t, js, ledger.ResultsStream)
	r.Publish(t.Context(), "weir.jobs.pay.good", "two", []byte("the question"))
	await.Until(t, "a result that cannot be stored", func() bool {
		return strings.Contains(program.Command(t, r.Env, "status").Stdout, "outcomes cannot be stored")
	})
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if n := resultsOf(t, js); n["one"] != 1 || n["two"] != 1 {
		t.Errorf("results: %v", n)
	}
	of := map[string]int{}
	for _, c := range store.RecordsOf(t, js) {
		of[c.Job]++
	}
	if of["one"] != 1 || of["two"] != 1 || len(r.API.All()) > 2 {
		t.Errorf("records: %v, %d calls", of, len(r.API.All()))
	}
}
