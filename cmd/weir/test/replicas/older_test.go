package replicas

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestNoRecordBesideAnOlderReplica: a record is stored beside its result as long as nobody of an earlier version dispatches, who would take
// it for the result's proof. While somebody does, nothing is in the ledger before the result is stored; and `weir status` says of whom that is.
func TestNoRecordBesideAnOlderReplica(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, weirtest.OneServer(t), 1, "dead_letters: {max_bytes: 256MiB}\n"+fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(n int) {
		r.Publish(t.Context(), "weir.jobs.pay.k", fmt.Sprint("job-", n), []byte("{}"))
	}
	jobs := 0
	await.Until(t, "a record beside its result", func() bool { // at first the replica does not know who else is there
		submit(jobs)
		jobs++
		r.AwaitEmpty()
		records := weirtest.RecordsOf(t, js)
		return records[len(records)-1].Beside
	})

	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	older, err := registry.Join(t.Context(), lease.Member{Instance: "former"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- older.Keep(t.Context(), func(*lease.Member) {}, func(lease.Renewal) {}) }()
	env := []string{"WEIR_NATS_URL=" + r.NC.ConnectedUrl()}
	await.Until(t, "the replica to tell of the older one", func() bool {
		return strings.Contains(weirtest.Command(t, env, "status").Stdout, "replica former is of an earlier version: results are stored before their records")
	})
	told := func() (s status.Status) {
		got := weirtest.Command(t, env, "status", "--json")
		if err := json.Unmarshal([]byte(got.Stdout), &s); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		return s
	}
	if s := told(); !s.Healthy || s.Older() != "former" { // it is no problem
		t.Errorf("%+v", s)
	}

	results, err := js.Stream(t.Context(), ledger.ResultsStream)
	if err != nil {
		t.Fatal(err)
	}
	open := results.CachedInfo().Config
	shut := open
	shut.Subjects = []string{"nobody.writes.here"}
	if _, err := js.UpdateStream(t.Context(), shut); err != nil {
		t.Fatal(err)
	}
	submit(jobs)
	await.Until(t, "a result that cannot be stored", func() bool {
		s := told()
		return len(s.APIs) == 1 && len(s.APIs[0].Holds) == 1 && s.APIs[0].Holds[0].Why == "outcomes cannot be stored"
	})
	if n := len(weirtest.RecordsOf(t, js)); n != jobs {
		t.Errorf("the ledger has %d records of %d calls whose results are stored", n, jobs)
	}
	if _, err := js.UpdateStream(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	r.AwaitEmpty()
	if records := weirtest.RecordsOf(t, js); len(records) != jobs+1 || records[jobs].Beside || records[jobs].Outcome != ledger.Done {
		t.Errorf("%+v", records[jobs:])
	}
	select {
	case err := <-ended:
		t.Errorf("the lease of the older replica has ended: %v", err)
	default:
	}
}
