package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/status"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitView waits until the only replica knows who else dispatches, and stores a record beside its result where nobody does: it has renewed
// its lease after it had seen all others, and once more.
func awaitView(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	await.Until(t, "three renewals of the only replica", func() bool {
		members, err := registry.Members(t.Context())
		if err == nil && len(members) == 1 {
			seen[members[0].Revision] = true
		}
		return len(seen) > 2
	})
}

// TestNoRecordBesideAnOlderReplica: a record is stored beside its result as long as nobody of an earlier version dispatches, who would take
// it for the result's proof. While somebody does, nothing is in the ledger before the result is stored; and `weir status` says of whom that is.
func TestNoRecordBesideAnOlderReplica(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, oneServer(t), 1, "dead_letters: {max_bytes: 256MiB}\n"+fmt.Sprintf(replicaAPI, notIdempotent))
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(n int) {
		r.publish(t.Context(), "weir.jobs.pay.k", fmt.Sprint("job-", n), []byte("{}"))
	}
	jobs := 0
	await.Until(t, "a record beside its result", func() bool { // at first the replica does not know who else is there
		submit(jobs)
		jobs++
		r.awaitEmpty()
		records := recordsOf(t, js)
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
	env := []string{"WEIR_NATS_URL=" + r.nc.ConnectedUrl()}
	await.Until(t, "the replica to tell of the older one", func() bool {
		return strings.Contains(command(t, env, "status").stdout, "replica former is of an earlier version: results are stored before their records")
	})
	told := func() (s status.Status) {
		got := command(t, env, "status", "--json")
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
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
	if n := len(recordsOf(t, js)); n != jobs {
		t.Errorf("the ledger has %d records of %d calls whose results are stored", n, jobs)
	}
	if _, err := js.UpdateStream(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	r.awaitEmpty()
	if records := recordsOf(t, js); len(records) != jobs+1 || records[jobs].Beside || records[jobs].Outcome != ledger.Done {
		t.Errorf("%+v", records[jobs:])
	}
	select {
	case err := <-ended:
		t.Errorf("the lease of the older replica has ended: %v", err)
	default:
	}
}
