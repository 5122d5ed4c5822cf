package limits

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/weirtest"
)

// TestClockStepsOverMidnight: a budget that is spent is there again when the machine's clock is set forward over midnight, and the event
// clock tells of the step.
func TestClockStepsOverMidnight(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    price: 1.00\n    bucket: {rate: 100/s, capacity: 5}\n"+
		"    limits: [{name: spend, budget: 1.00/day, tz: "+machine.Noon()+"}]\n")
	t.Cleanup(r.Stop)
	r.Clock = clock.New()
	r.Start()
	r.Producer().Send("pay", "a", nil, "first")
	r.AwaitCalls(1)
	r.Producer().Send("pay", "a", nil, "second")
	r.Eventually("the budget holds the api", func() bool {
		return len(r.Store().Stored("WEIR_EVENTS", "weir.events.held.pay._")) == 1
	})
	r.Clock.Set(24 * time.Hour)
	r.AwaitCalls(2)
	r.Eventually("the event", func() bool {
		return len(r.Store().Stored("WEIR_EVENTS", "weir.events.clock.pay._")) == 1
	})
}

// TestStartWithASlowClock: a process that starts by a clock that is 30 days behind calls as soon as its limits allow, and tells of the
// clock by an event and in the status.
func TestStartWithASlowClock(t *testing.T) {
	t.Parallel()
	const behind = 30 * 24 * time.Hour
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/100ms, capacity: 5}\n"+
		"    limits: [{name: account, rate: 1/100ms}, {name: calls, in_flight: 1}, {name: day, quota: 100/day}]\n")
	t.Cleanup(r.Stop)
	r.Start()
	r.Producer().Send("pay", "a", nil, "first")
	r.AwaitCalls(1)
	r.Stop()
	r.Clock = clock.StartingAt(time.Now().Add(-behind))
	r.Clock.Set(-behind)
	r.Start()
	r.Producer().Send("pay", "a", nil, "second")
	r.AwaitCalls(2)
	r.Eventually("the event", func() bool {
		return len(r.Store().Stored("WEIR_EVENTS", "weir.events.clock.pay._")) == 1
	})
	if out, code := r.CLI().Run("status"); code != 1 || !strings.Contains(out, "behind the one that its limits were counted by") {
		t.Errorf("status ends with %d: %s", code, out)
	}
}

// TestDeadlinesGoByTheWallClock: a process that started by a wrong clock ends and calls jobs by the clock that was set
// right.
func TestDeadlinesGoByTheWallClock(t *testing.T) {
	t.Parallel()
	const config = "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 5}\n"
	t.Run("ahead", func(t *testing.T) {
		t.Parallel()
		r := weirtest.ReadyRig(t, fakeapi.Options{}, config)
		t.Cleanup(r.Stop)
		r.Clock = clock.StartingAt(time.Now().Add(time.Hour))
		r.Start()
		due := time.Now().Add(5 * time.Second)
		if a := r.Producer().SendNotBefore("k", "later", due.UTC().Format(time.RFC3339Nano)); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
		if a := r.Producer().Submit("weir.jobs.pay.l", nil, map[string]string{"Nats-Msg-Id": "soon", "Weir-Deadline": "1m"}); a.Error != nil {
			t.Fatalf("a job that can be called in time is refused: %+v", a.Error)
		}
		r.AwaitCalls(2)
		if left := time.Until(due); left > 0 {
			t.Errorf("a job was called %v before its time", left)
		}
	})
	t.Run("behind", func(t *testing.T) {
		t.Parallel()
		r := weirtest.ReadyRig(t, fakeapi.Options{}, config)
		t.Cleanup(r.Stop)
		r.Clock = clock.StartingAt(time.Now().Add(-time.Hour))
		r.Start()
		r.CLI().Must("pause", "pay")
		if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": "late", "Weir-Deadline": "1s"}); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
		r.Eventually("the letter", func() bool { return len(r.Store().Letters("pay", "k")) == 1 })
	})
}
