package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const pausedYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 200/s, capacity: 500, in_flight: 1}
    keys: {idle: {rate: 1/h}}
`

// TestPauseSurvivesRestarts: nothing that is paused is called, before a restart, during it, or after it. A key that is
// resumed while no weir runs is called from the next start on.
func TestPauseSurvivesRestarts(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(pausedYAML, api.URL()))
	for i := range 60 {
		r.Producer().Pay("paused", fmt.Sprint("p", i))
		r.Producer().Pay("free", fmt.Sprint("f", i))
	}
	r.PutPause("paused")
	calls := len(r.API.Arrivals("paused")) // one may run still
	r.Eventually("the free key's jobs to end", func() bool { return len(r.Store().Results("pay", "free")) == 60 })
	if n := len(r.API.Arrivals("paused")); n > calls+1 {
		t.Fatalf("%d calls of the paused key started after its pause", n-calls)
	}
	r.Stop()
	calls = len(r.API.Arrivals("paused")) // all have arrived
	r.Start()
	r.Producer().Pay("free", "after")
	r.Eventually("a call of the free key after the restart", func() bool {
		return len(r.Store().Results("pay", "free")) == 61
	})
	if n := len(r.API.Arrivals("paused")); n != calls {
		t.Fatalf("%d calls of the paused key started after the restart", n-calls)
	}
	r.PutPause("") // the api as well, and then the key's own word is taken back
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "paused")); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Start()
	if _, ok := r.Worker.Parts().Dispatcher.Desk.Pauses("pay")["paused"]; ok || len(r.API.Arrivals("paused")) != calls {
		t.Fatal("a pause that was taken back is in force, or a paused api was called")
	}
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.Eventually("all jobs to end", func() bool { return len(r.Store().Results("pay", "paused")) == 60 })
	if n := len(r.API.Arrivals("paused")); n != 60 {
		t.Errorf("%d calls of 60 jobs", n)
	}
	if n := r.Store().Messages("WEIR_DEAD"); n != 0 {
		t.Errorf("%d letters: a pause ends no job", n)
	}
}

// TestPauseEndsByItself: a pause with an end holds over a restart and ends at its time, even if no weir runs then, and
// its key is called from then on. A new pause by an operator before that end replaces it.
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(pausedYAML, api.URL()))
	inForce := func(key string) bool { _, ok := r.Worker.Parts().Dispatcher.Desk.Pauses("pay")[key]; return ok }
	pause := func(key string, lasts time.Duration) (ends time.Time) {
		said := time.Now()
		word, err := json.Marshal(schedule.Pause{At: said, By: "test", ForMS: lasts.Milliseconds()})
		if err == nil {
			_, err = r.Control().Put(t.Context(), admin.PauseEntry("pay", key), word)
		}
		if err != nil {
			t.Fatal(err)
		}
		ends = said.Add(lasts)
		switch entry, err := r.Control().Get(t.Context(), admin.PauseEntry("pay", key)); {
		case err == nil:
			ends = entry.Created().Add(lasts)
		case !errors.Is(err, jetstream.ErrKeyNotFound) || time.Now().Before(ends): // a busy machine finds it over already
			t.Fatal(err)
		}
		r.Eventually("the pause to be in force", func() bool { return inForce(key) || time.Now().After(ends) })
		return ends
	}
	calledAfter := func(key string, ends time.Time) {
		t.Helper()
		r.Eventually("the end of the pause", func() bool { return len(r.Store().Results("pay", key)) == 1 })
		if got := r.API.Arrivals(key); len(got) != 1 || r.API.Started().Add(time.Duration(got[0].At)).Before(ends.Add(-10*time.Millisecond)) {
			t.Errorf("%s was called %d times, or before the end of its pause at %s", key, len(got), ends)
		}
		if inForce(key) {
			t.Errorf("the pause of %s is in force after its end", key)
		}
	}
	kept := pause("kept", 2*time.Second)
	again := pause("kept", time.Hour).Add(-time.Hour) // for longer
	shortly, restarted := pause("shortly", 500*time.Millisecond), pause("restarted", 2*time.Second)
	for _, key := range []string{"shortly", "restarted", "kept"} {
		r.Producer().Pay(key, key)
	}
	calledAfter("shortly", shortly)
	r.Stop()
	r.Start()
	calledAfter("restarted", restarted)
	if time.Now().Before(kept) || !inForce("kept") || len(r.API.Arrivals("kept")) > 0 {
		t.Error("the later of two pauses does not stand")
	}

	away := pause("away", time.Second)
	r.Producer().Pay("away", "away")
	r.Stop()
	await.Until(t, "the end of the pause, while no weir runs", func() bool { return time.Now().After(away) })
	r.Start()
	calledAfter("away", away)
	if _, err := r.Control().Get(t.Context(), admin.PauseEntry("pay", "away")); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the entry of a pause that is over: %v", err)
	}
	over := 0
	for _, m := range r.Store().Stored("WEIR_EVENTS", "weir.events.resumed.pay.*") {
		if strings.Contains(string(m.Data), "the pause is over") {
			over++
		}
	}
	// If the machine stood still for two seconds, the first pause of "kept" has ended too.
	if late := again.After(kept); over != 3 && (!late || over != 4) {
		t.Errorf("%d events tell of pauses that are over, want 3", over)
	}
}

// TestCancelTakesNoSlot cancels every other job of a queue that is being called: none of them is called, every one is a
// letter, and the rest are called in order.
func TestCancelTakesNoSlot(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 1 << 10,
		Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if q.KeyCall < 20 {
				return fakeapi.Behaviour{}
			}
			return g.script(ctx, q) // or a slow machine finds nothing left to cancel
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r := weirtest.RigOn(t, api, fmt.Sprintf(pausedYAML, api.URL()))
	r.WhilePaused(func() {
		var jobs []*nats.Msg
		for i := range 200 {
			job := producer.JobFor("pay", "k", fmt.Sprint("j", i))
			job.Header.Set("Nats-Msg-Id", fmt.Sprint("j", i))
			jobs = append(jobs, job)
		}
		producer.FillTaken(t, r.NC, jobs)
	})
	cancelled := map[string]bool{}
	for i := 199; i > 0; i -= 8 {
		answers, err := r.Worker.Parts().Dispatcher.Desk.Cancel(t.Context(), desk.Cancellation{API: "pay", Job: fmt.Sprint("j", i), Why: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Verdict == schedule.CancelTaken {
				cancelled[fmt.Sprint("j", i)] = true
			}
		}
		g.lift()
	}
	if len(cancelled) == 0 {
		t.Fatal("nothing could be cancelled")
	}
	r.Eventually("all jobs to end", func() bool { return r.Store().Waiting("pay") == 0 })
	last := -1
	for _, a := range r.API.Arrivals("k") {
		var n int
		if _, err := fmt.Sscanf(string(a.Body), "j%d", &n); err != nil {
			t.Fatal(err)
		}
		if cancelled[string(a.Body)] {
			t.Errorf("%s was called after it was cancelled", a.Body)
		}
		if n <= last {
			t.Errorf("job %d was called after job %d", n, last)
		}
		last = n
	}
	if n := len(r.API.Arrivals("k")); n != 200-len(cancelled) {
		t.Errorf("%d calls of 200 jobs, %d cancelled", n, len(cancelled))
	}
	letters := r.Store().Letters("pay", "k")
	if len(letters) != len(cancelled) {
		t.Fatalf("%d letters of %d cancelled jobs", len(letters), len(cancelled))
	}
	for _, l := range letters {
		if l.Header.Get("Weir-Dead-Reason") != "cancelled" || l.Header.Get("Weir-Dead-Billed") != "no" {
			header, _ := json.Marshal(l.Header)
			t.Errorf("a letter says %s", header)
		}
	}
}
