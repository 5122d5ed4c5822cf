package jobs

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

const deadlineYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 20}
`

// TestDeadlinePassesWhilePaused: a job ends at its deadline although its api is paused, and so does one that was read after
// a restart; one without a deadline waits on.
func TestDeadlinePassesWhilePaused(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(deadlineYAML, api.URL()))
	r.Gauge("weir_paused", 0)
	r.PutPause("")
	r.PutPause("other")
	r.Gauge("weir_paused", 2)
	r.Gauge("weir_held", 0)
	ends := r.Producer().SendUntil("k", "first", "1s")
	r.Producer().Pay("k", "second")
	later := r.Producer().SendUntil("k", "third", "1s")
	r.Store().RequireExpired(ends, "k", "0")
	r.Stop()
	r.Start()
	again := r.Producer().SendUntil("l", "fourth", "1s")
	r.Store().RequireExpired(again, "l", "0")
	if err := later.Unsubscribe(); err != nil { // its connection is gone: its letter tells
		t.Log(err)
	}
	if n := len(r.Store().Letters("pay", "k")); n != 1 {
		t.Errorf("%d letters: a job behind another is judged when it is the first", n)
	}
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.Store().Ended("pay", "k", 1)
	r.Eventually("the job behind it to expire", func() bool { return len(r.Store().Letters("pay", "k")) == 2 })
	if n := len(r.API.All()); n != 1 {
		t.Errorf("%d calls, one job has no deadline", n)
	}
	r.Gauge("weir_paused", 1)
	r.Gauge("weir_keys", 0)
}

// TestEndIsNotedBeforeItsLetter: why a job is not called is noted in its queue before its letter is stored. A crash in between would
// otherwise call a job that has a letter, once what kept it from being called is past.
func TestEndIsNotedBeforeItsLetter(t *testing.T) {
	t.Parallel()
	r := weirtest.RigOn(t, weirtest.StartOrdered(t, nil), fmt.Sprintf(deadlineYAML, "http://127.0.0.1:9"))
	r.PutPause("")
	stored := make(chan *nats.Msg, 16)
	for _, subject := range []string{"weir.q.pay.*.r.>", "weir.dead.pay.>"} {
		if _, err := r.Operators().Conn().ChanSubscribe(subject, stored); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Operators().Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	r.Store().RequireExpired(r.Producer().SendUntil("k", "first", "200ms"), "k", "0")
	mark, letter := await.Receive(t, "what is stored first", stored), await.Receive(t, "what is stored next", stored)
	if !strings.HasPrefix(mark.Subject, "weir.q.") || !strings.Contains(string(mark.Data), `"expired"`) || !strings.HasPrefix(letter.Subject, "weir.dead.") {
		t.Errorf("stored %s %s, and then %s", mark.Subject, mark.Data, letter.Subject)
	}
}

// TestDeadlinePassesUnderAHold: a job that was pushed back for longer than it has time expires when its time is over, and
// its letter tells the answer; so does that of a job which is cancelled then, also after a restart.
func TestDeadlinePassesUnderAHold(t *testing.T) {
	t.Parallel()
	const far = "status=429;retry-after=600"
	api := weirtest.StartOrdered(t, map[string][]string{"late": {far}, "off": {far}, "restart": {far}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(deadlineYAML, api.URL()))
	cancel := func(key string) {
		t.Helper()
		answers, err := r.Worker.Parts().Dispatcher.Desk.Cancel(t.Context(), desk.Cancellation{API: "pay", Job: key})
		if err != nil || len(answers) != 1 || answers[0].Verdict != schedule.CancelTaken {
			t.Fatalf("not cancelled: %v %v", answers, err)
		}
		store.RequireStatus(t, r.Store().Letters("pay", key)[0], "cancelled", "429")
	}
	held := func(key string) {
		t.Helper()
		r.Eventually("a hold", func() bool {
			d, err := r.Worker.Parts().Dispatcher.Desk.Show(t.Context(), "pay", key, 1)
			return err == nil && d.Waits.For == schedule.WaitHeld && len(d.Next) == 1 && d.Next[0].Phase == schedule.JobRetries
		})
	}
	ends := r.Producer().SendUntil("late", "late", "5s")
	r.Producer().Pay("off", "off")
	r.Producer().Pay("restart", "restart")
	for _, key := range []string{"off", "restart"} {
		held(key)
	}
	r.Store().RequireExpired(ends, "late", "429")
	cancel("off")
	r.Stop()
	r.Start()
	held("restart")
	cancel("restart")
	if n := len(r.API.All()); n != 3 {
		t.Errorf("%d calls of three jobs that were pushed back for ten minutes", n)
	}
	r.Gauge("weir_keys", 0)
}
