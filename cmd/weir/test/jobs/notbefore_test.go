package jobs

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/ingest"
)

const notBeforeYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 20/s, capacity: 6, in_flight: 1, max_wait: 3s}
`

// TestNotBefore: a job waits in its bucket until its time has come, also over a restart, and no job waits behind it.
// Its receipt, a copy of it, the capacity, a cancellation and the displays of its key take that into account.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(notBeforeYAML, api.URL()))
	due := time.Now().Add(time.Hour)
	at := func(after time.Duration) string { return due.Add(after).Format(time.RFC3339Nano) }

	third := r.Producer().SendNotBefore("k", "third", at(500*time.Millisecond))
	second := r.Producer().SendNotBefore("k", "second", at(0), "Weir-Deadline", "1h")
	year := r.Producer().SendNotBefore("k", "year", "8784h")
	gone := r.Producer().SendNotBefore("k", "gone", "100h")
	// A receipt may be sooner than its owner has read those before.
	for n, name := range []string{"second", "third", "gone", "year"} {
		r.Eventually(fmt.Sprintf("%s has position %d", name, n+1), func() bool {
			a := r.Producer().SendNotBefore("k", name, "1h")
			return a.Duplicate && a.Position == n+1
		})
	}
	for _, c := range []struct {
		producer.Answer
		want time.Duration
	}{{second, time.Until(due)}, {third, time.Until(due)}, {year, ingest.MostNotBefore - time.Minute}, {gone, 99 * time.Hour}} {
		if c.Error != nil || c.Eta() < c.want {
			t.Errorf("a receipt says that its job is called in %s, before its time: %+v", c.Eta(), c.Answer)
		}
	}
	first := r.Producer().SendNotBefore("k", "first", "")
	if first.Position != 1 || first.Eta() > time.Second {
		t.Errorf("a job behind jobs that wait for their time: position %d, in %s", first.Position, first.Eta())
	}
	if all := r.AwaitCalls(1); string(all[0].Body) != "first" {
		t.Fatalf("called first: %s", all[0].Body)
	}
	r.Eventually("four jobs wait", func() bool { return r.Store().Waiting("pay") == 4 })
	r.Gauge("weir_queued_jobs", 0) // none of them is due, though the key has them
	r.Gauge("weir_keys", 1)
	if again := r.Producer().SendNotBefore("k", "year", "8784h"); !again.Duplicate || again.Seq != year.Seq || again.Position != 4 || again.Eta() < 365*24*time.Hour {
		t.Errorf("a copy: %+v", again)
	}
	r.Producer().RefuseNotBefore()
	r.Producer().FillNotBefore()
	r.CLI().SeeNotBefore(due)
	if said, code := r.CLI().Run("cancel", "pay", "gone"); code != 0 {
		t.Fatalf("cancel: %s", said)
	}
	// So that both are there before one is called, also if the machine stands still.
	if said, code := r.CLI().Run("pause", "pay"); code != 0 {
		t.Fatalf("pause: %s", said)
	}
	due = time.Now().Add(2 * time.Second)
	r.Producer().SendNotBefore("k", "later", at(500*time.Millisecond))
	r.Producer().SendNotBefore("k", "sooner", at(0))
	r.Stop()
	r.Start()
	if said, code := r.CLI().Run("resume", "pay"); code != 0 {
		t.Fatalf("resume: %s", said)
	}
	for _, a := range r.AwaitCalls(3) {
		name, came := string(a.Body), api.Started().Add(time.Duration(a.At))
		if name != "first" && came.Before(due) || name == "later" && came.Before(due.Add(500*time.Millisecond)) {
			t.Errorf("%s was called %s before its time", name, due.Sub(came))
		}
	}
	if all := api.All(); string(all[1].Body)+" "+string(all[2].Body) != "sooner later" {
		t.Errorf("called second and third: %s, %s", all[1].Body, all[2].Body)
	}
	if letters := r.Store().Letters("pay", "k"); len(letters) != 1 || letters[0].Header.Get("Weir-Job-Id") != "gone" || letters[0].Header.Get(ingest.HeaderNotBefore) != "100h" {
		t.Errorf("%d letters", len(letters))
	}
	r.Eventually("three jobs of an hour and later and the six of the full bucket wait", func() bool {
		return r.Store().Waiting("pay") == 9
	})
}
