package recovery

import (
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

// TestUnreadableCheckpointGrantsLess: what a shared rate had used is damaged while weir is stopped. The next start
// grants none of it again, and says what to do.
func TestUnreadableCheckpointGrantsLess(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n"+
		"    limits: [{name: all, rate: 10/1h, burst: 10}]\n")
	t.Cleanup(r.Stop)
	r.Start()
	for range 12 {
		r.Producer().Send("pay", "k", nil, "a job")
	}
	r.AwaitCalls(10)
	r.Eventually("all are recorded", func() bool { return len(r.Store().Stored("WEIR_CALLS", "weir.calls.>")) == 10 })
	r.Stop()
	natstest.Spoil(t, r.Settings().DataDir, "KV_weir_control", `"made":`)
	r.Said = &program.Book{}
	r.Start()
	for range 12 {
		r.Producer().Send("pay", "l", nil, "a job")
	}
	told := func() (text string) {
		for _, e := range r.Store().Stored("WEIR_EVENTS", "weir.events.unhealthy.>") {
			text += string(e.Data)
		}
		return text
	}
	r.Eventually("an event", func() bool { return strings.Contains(told(), "limits.pay") })
	if n := len(r.API.All()); n > 10 {
		t.Errorf("%d calls of 10", n)
	}
	if out, _ := r.CLI().Run("status"); !strings.Contains(out, "limits.pay") {
		t.Errorf("status: %s", out)
	}
}

// TestUnreadablePausePauses: a pause is damaged while weir is stopped. What was paused stays paused, all else in the
// bucket stays as it was, and `weir resume` ends the pause.
func TestUnreadablePausePauses(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n")
	t.Cleanup(r.Stop)
	r.Start()
	r.CLI().Must("pause", "pay", "--why", "the damaged one")
	r.CLI().Must("pause", "pay", "other", "--why", "the whole one")
	r.Stop()
	natstest.Spoil(t, r.Settings().DataDir, "KV_weir_control", "the damaged one")
	r.Start()
	for _, key := range []string{"k", "other"} {
		r.Producer().Send("pay", key, nil, "a job")
	}
	r.CLI().Must("resume", "pay")
	r.Eventually("the call of k", func() bool { return len(r.API.All()) == 1 })
	if out := r.CLI().Must("show", "pay", "other"); !strings.Contains(out, "the whole one") {
		t.Errorf("the other pause: %s", out)
	}
	r.CLI().Must("resume", "pay", "other")
	r.AwaitCalls(2)
	r.Stop()
	r.Start() // the bucket can be read and written
	r.CLI().Must("pause", "pay")
}
