package fleet

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weir/dispatcher/schedule"
	"weir/ingest/await"
)

// TestOneReplicaClaims lets all replicas claim the probe at once: one gets it, and keeps it as long as it renews it.
func TestOneReplicaClaims(t *testing.T) {
	js, kv := control(t)
	var all []*replica
	for i := range 3 {
		all = append(all, startReplica(t, js, kv, fmt.Sprint("r", i), 0))
	}
	all[0].end(schedule.CallEnd{Denied: true, Detail: "401"})
	for _, r := range all {
		await.Until(t, "the open breaker", func() bool { return r.awaitsProbe() == 1 })
	}
	for _, r := range all {
		r.Look(false, 1)
	}
	claims := func() (n int) {
		for _, r := range all {
			if r.hasClaim() {
				n++
			}
		}
		return n
	}
	await.Until(t, "a claim", func() bool { return claims() > 0 })
	seen := all[0].of("pay").revision
	await.Until(t, "renewals", func() bool { return all[0].of("pay").revision > seen+1 })
	if n := claims(); n != 1 {
		t.Fatalf("%d replicas have the claim", n)
	}
}

// TestTheFirstClaimWins lets two replicas claim the probe that have both seen the same entry, and not each other's
// claim: the second one gets nothing.
func TestTheFirstClaimWins(t *testing.T) {
	js, kv := control(t)
	if _, err := kv.Put(t.Context(), keyOf("pay"), entry{
		Turn:    1,
		Open:    true,
		Denied:  true,
		Replica: "other",
		Session: "other",
	}.encode()); err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), keyOf("pay"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*replica
	for i := range 2 {
		r := newReplica(js, kv, fmt.Sprint("r", i), 0)
		r.see(e, r.Board.Now().Add(-time.Second))
		r.Look(false, r.awaitsProbe())
		all = append(all, r)
	}
	for i, r := range all {
		r.act(t.Context())
		if r.hasClaim() != (i == 0) {
			t.Errorf("replica %d has the claim: %v", i, r.hasClaim())
		}
	}
}

// TestOpenBreakerIsProbedWithoutTheBucket checks that a replica that can store neither a turn of the breaker nor a
// claim probes by itself in the end, and says so once.
func TestOpenBreakerIsProbedWithoutTheBucket(t *testing.T) {
	t.Parallel()
	for what, told := range map[string]bool{"the turn is not stored": false, "the claim is not stored": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			js, kv := control(t)
			r := newReplica(js, kv, "only", 0)
			var lines lines
			r.Teller.Log, r.Board.Log = slog.New(&lines), slog.New(&lines)
			r.start(t)
			open := func() { r.end(schedule.CallEnd{Denied: true, Detail: "401"}) }
			if told {
				open()
				await.Until(t, "the turn", func() bool { return r.awaitsProbe() == 1 })
			}
			if err := js.DeleteKeyValue(t.Context(), kv.Bucket()); err != nil {
				t.Fatal(err)
			}
			if !told {
				open()
			}
			r.push()
			await.Until(t, "the probe", r.pump)
			if n := lines.count("by itself"); n != 1 {
				t.Errorf("%d log lines say that the replica probes by itself", n)
			}
		})
	}
}

// TestOthersDoNotRenewAClaim checks that the claim of a replica that died ends although others write the entry.
func TestOthersDoNotRenewAClaim(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	claimed := time.Now().Add(-time.Minute)
	r.wrote("pay", sighting{entry: entry{Session: "dead", Probing: "dead"}, revision: 1, claimed: claimed})
	for i, writer := range []string{"other", "first"} {
		r.wrote("pay", sighting{entry: entry{Session: writer, Probing: "dead"}, revision: uint64(2 + i), claimed: time.Now()})
	}
	if s := r.of("pay"); r.claimable(&s, 0) > 0 {
		t.Errorf("the claim lasts %v more", r.claimable(&s, 0))
	}
	r.wrote("pay", sighting{entry: entry{Session: "dead", Probing: "dead"}, revision: 4, claimed: time.Now()})
	if s := r.of("pay"); r.claimable(&s, 0) <= 0 {
		t.Error("a renewed claim has ended")
	}
}

// TestClaimOfAnotherEndsProbingAlone checks that a replica that probes by itself stops that when another replica has
// the claim: the bucket can be written again.
func TestClaimOfAnotherEndsProbingAlone(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	r.wrote("pay", sighting{
		entry: entry{Turn: 1, Open: true, Denied: true, Session: "other", Probing: "other"}, revision: 3, claimed: time.Now(),
		found: schedule.Finding{At: r.Board.Now(), Turn: 1, Until: r.Board.Now(), Denied: true},
	})
	r.learn()
	r.trouble = trouble{since: time.Now().Add(-time.Minute), revision: 2}
	if !r.Sched.Findings.ProbeAlone() {
		t.Fatal("the breaker is not open")
	}
	r.Look(false, 1)
	if wait := r.act(t.Context()); wait <= 0 || wait > claimTerm {
		t.Errorf("the claim lasts %v", wait)
	}
	if !r.Sched.Findings.ProbeAlone() {
		t.Error("the replica still probes without a claim")
	}
	if r.trouble != (trouble{}) {
		t.Errorf("the trouble goes on: %+v", r.trouble)
	}
}

// TestRereadDoesNotRenewAClaim checks that a claim does not last longer because its entry is read again.
func TestRereadDoesNotRenewAClaim(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	of := entry{Turn: 1, Open: true, Session: "dead", Probing: "dead"}
	revision, err := kv.Put(t.Context(), keyOf("pay"), of.encode())
	if err != nil {
		t.Fatal(err)
	}
	r.wrote("pay", sighting{entry: of, revision: revision, claimed: time.Now().Add(-time.Minute)})
	s := r.of("pay")
	if err := r.reread(t.Context(), "pay", &s); err != nil {
		t.Fatal(err)
	}
	if s = r.of("pay"); r.claimable(&s, 0) > 0 {
		t.Errorf("the claim lasts %v more", r.claimable(&s, 0))
	}
}
