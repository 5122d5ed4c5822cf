package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/control"
	"weir/dispatcher"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// gauge waits until a series of the api pay has exactly this value.
func (r *rig) gauge(name string, want float64) {
	r.t.Helper()
	line := fmt.Sprintf("\n%s{api=\"pay\"} %v\n", name, want)
	r.eventually("the metric"+line, func() bool { return strings.Contains(r.get("/metrics"), line) })
}

// holdEvents requires that these are the subjects of all events of holds, in order.
func (r *rig) holdEvents(want ...string) {
	r.t.Helper()
	of := func() (subjects []string) {
		for _, m := range append(r.stored("WEIR_EVENTS", "weir.events.held.pay.*"), r.stored("WEIR_EVENTS", "weir.events.resumed.pay.*")...) {
			subjects = append(subjects, m.Subject)
		}
		return subjects
	}
	r.eventually(fmt.Sprint("the events ", want), func() bool { return len(of()) >= len(want) })
	if got := of(); !slices.Equal(got, want) {
		r.t.Errorf("the events of holds are %v, want %v", got, want)
	}
}

const deadlineYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 20}
`

// sendUntil submits a job with a deadline, and returns where its end is told.
func (r *rig) sendUntil(key, id, deadline string) *nats.Subscription {
	r.t.Helper()
	inbox := "_INBOX.end." + id
	ends, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		r.t.Fatal(err)
	}
	r.send("pay", key, nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}, "Weir-Deadline": {deadline}, "Weir-Reply-To": {inbox},
	}, id)
	return ends
}

// requireExpired waits until a job's end is told, and requires that it is a letter.
func (r *rig) requireExpired(ends *nats.Subscription, key, status string) {
	r.t.Helper()
	end, err := ends.NextMsg(patience)
	if err != nil {
		r.t.Fatalf("the job's end is not told: %v", err)
	}
	letters := r.letters("pay", key)
	if end.Header.Get("Weir-Outcome") != "expired" || len(letters) == 0 {
		r.t.Fatalf("the end is told as %v; %d letters", end.Header, len(letters))
	}
	last := letters[len(letters)-1]
	requireStatus(r.t, last, "expired", status)
	if got := last.Header.Get("Weir-Dead-Detail"); !strings.HasPrefix(got, "the deadline passed before its call; it had waited ") {
		r.t.Errorf("the letter of a job that waited says: %s", got)
	}
}

func requireStatus(t *testing.T, letter *jetstream.RawStreamMsg, reason, status string) {
	t.Helper()
	if h := letter.Header; h.Get("Weir-Dead-Reason") != reason || h.Get("Weir-Dead-Status") != status {
		t.Errorf("a letter %s with status %s, want %s with %s", h.Get("Weir-Dead-Reason"), h.Get("Weir-Dead-Status"), reason, status)
	}
}

// TestDeadlinePassesWhilePaused: a job ends at its deadline although its api is paused, and so does one that was read after
// a restart; one without a deadline waits on.
func TestDeadlinePassesWhilePaused(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, nil)
	r := rigOn(t, api, fmt.Sprintf(deadlineYAML, api.URL()))
	r.gauge("weir_held", 0)
	r.putPause("")
	r.putPause("other")
	r.gauge("weir_held", 2)
	ends := r.sendUntil("k", "first", "1s")
	r.pay("k", "second")
	later := r.sendUntil("k", "third", "1s")
	r.requireExpired(ends, "k", "0")
	r.stop()
	r.start()
	again := r.sendUntil("l", "fourth", "1s")
	r.requireExpired(again, "l", "0")
	if err := later.Unsubscribe(); err != nil { // its connection is gone: its letter tells
		t.Log(err)
	}
	if n := len(r.letters("pay", "k")); n != 1 {
		t.Errorf("%d letters: a job behind another is judged when it is the first", n)
	}
	if err := r.control().Delete(t.Context(), control.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.ended("pay", "k", 1)
	r.eventually("the job behind it to expire", func() bool { return len(r.letters("pay", "k")) == 2 })
	if n := len(r.api.All()); n != 1 {
		t.Errorf("%d calls, one job has no deadline", n)
	}
	r.gauge("weir_held", 1)
	r.gauge("weir_keys", 0)
}

// TestEndIsNotedBeforeItsLetter: why a job is not called is noted in its queue before its letter is stored. A crash in between would
// otherwise call a job that has a letter, once what kept it from being called is past.
func TestEndIsNotedBeforeItsLetter(t *testing.T) {
	t.Parallel()
	r := rigOn(t, startOrdered(t, nil), fmt.Sprintf(deadlineYAML, "http://127.0.0.1:9"))
	r.putPause("")
	stored := make(chan *nats.Msg, 16)
	for _, subject := range []string{"weir.q.pay.*.r.>", "weir.dead.pay.>"} {
		if _, err := r.operators().Conn().ChanSubscribe(subject, stored); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.operators().Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	r.requireExpired(r.sendUntil("k", "first", "200ms"), "k", "0")
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
	api := startOrdered(t, map[string][]string{"late": {far}, "off": {far}, "restart": {far}})
	r := rigOn(t, api, fmt.Sprintf(deadlineYAML, api.URL()))
	cancel := func(key string) {
		t.Helper()
		answers, err := r.worker.Parts().Dispatcher.Cancel(t.Context(), dispatcher.Cancellation{API: "pay", Job: key})
		if err != nil || len(answers) != 1 || answers[0].Verdict != schedule.CancelTaken {
			t.Fatalf("not cancelled: %v %v", answers, err)
		}
		requireStatus(t, r.letters("pay", key)[0], "cancelled", "429")
	}
	held := func(key string) {
		t.Helper()
		r.eventually("a hold", func() bool {
			d, err := r.worker.Parts().Dispatcher.Show(t.Context(), "pay", key, 1)
			return err == nil && d.Waits.For == schedule.WaitHeld && len(d.Next) == 1 && d.Next[0].Phase == schedule.JobRetries
		})
	}
	ends := r.sendUntil("late", "late", "5s")
	r.pay("off", "off")
	r.pay("restart", "restart")
	for _, key := range []string{"off", "restart"} {
		held(key)
	}
	r.requireExpired(ends, "late", "429")
	cancel("off")
	r.stop()
	r.start()
	held("restart")
	cancel("restart")
	if n := len(r.api.All()); n != 3 {
		t.Errorf("%d calls of three jobs that were pushed back for ten minutes", n)
	}
	r.gauge("weir_keys", 0)
}
