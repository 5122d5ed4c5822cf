package recovery

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/restoreguard"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
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

// TestUnreadableOrderRefuses: the value that says when the store was restored is damaged while weir is stopped. Every start
// refuses the store, until one is told that the store was restored.
func TestUnreadableOrderRefuses(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n")
	t.Cleanup(r.Stop)
	order := restoreguard.Order{Who: "an operator", Streams: map[string]restoreguard.Mark{}}
	r.Start()
	if err := order.Give(t.Context(), r.Control()); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	natstest.Spoil(t, r.Settings().DataDir, "KV_weir_control", "an operator")
	for range 2 { // the first one makes the bucket again
		_, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), weirtest.TestLog(t))
		if exit := (*cli.Exit)(nil); !errors.As(err, &exit) || exit.Code != cli.ExitRefused || !strings.Contains(err.Error(), "weir serve --restored") {
			t.Fatalf("a start without the order: %v", err)
		}
	}
	s := r.Settings()
	s.Restored = true
	w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	r.Start()
}

// TestDamagedBucketBesideAnExternalServer: a checkpoint, an account of use and a pause are damaged in the store of an
// external server. A start refuses the store before it writes to it, and says what to do. If that is done, the next start
// grants nothing again.
func TestDamagedBucketBesideAnExternalServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	port := natstest.Port(t, ns)
	r := weirtest.NewReplicas(t, ns.ClientURL(), 1, "apis:\n  pay:\n    url: %s/v1\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n"+
		"    limits: [{name: all, rate: 10/1h, burst: 10}, {name: days, quota: 1000/day, tz: "+machine.Noon()+"}]\n")
	commands := program.CLI{T: t, NATS: ns.ClientURL()}
	for n := range 12 {
		r.Publish(t.Context(), "weir.jobs.pay.k", fmt.Sprint("job-", n), []byte("a job"))
	}
	await.Until(t, "ten calls", func() bool { return len(r.API.All()) == 10 })
	commands.Must("pause", "pay", "other", "--why", "the damaged one")
	r.StopOne(0)
	ns.Shutdown()
	ns.WaitForShutdown()
	for _, text := range []string{`"made":`, `"account":{`, "the damaged one"} {
		natstest.Spoil(t, dir, "KV_weir_control", text)
	}
	ns = natstest.Start(t, dir, port)
	for range 2 { // the first one has written nothing
		out := program.Command(t, r.Each[0], "serve")
		if out.Code != 4 || !strings.Contains(out.Stderr, "3 values") || !strings.Contains(out.Stderr, "account.pay, limits.pay, pause.pay.other") {
			t.Fatalf("exit code %d: %s", out.Code, out.Stderr)
		}
	}
	if err := natstest.Connect(t, ns).DeleteStream(t.Context(), "KV_weir_control"); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.Procs[0], err = program.StartCommand(t, exec.Command(os.Args[0], "serve", "--restored"), r.Each[0]...); err != nil {
		t.Fatal(err)
	}
	r.Publish(t.Context(), "weir.jobs.pay.l", "job-l", []byte("a job"))
	if out := commands.Must("show", "pay", "l"); !strings.Contains(out, "counts as used up until its period is over") {
		t.Errorf("show: %s", out)
	}
	if n := len(r.API.All()); n != 10 {
		t.Errorf("%d calls of 10", n)
	}
}
