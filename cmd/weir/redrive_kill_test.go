package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// redriving starts a redrive in a process of its own, which can be killed; it does the work itself.
func (r *rig) redriving(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.CommandContext(await.Context(r.t, "a redrive"), os.Args[0], append([]string{"dead", "redrive", "--yes", "--here"}, args...)...)
	cmd.Env = append(environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.worker.NATSURL())
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return cmd
}

// letterCount is how many letters there are.
func (r *rig) letterCount() int {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), deadletter.Stream)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(r.t.Context(), jetstream.WithSubjectFilter("weir.dead.>"))
	if err != nil {
		r.t.Fatal(err)
	}
	return int(info.State.Msgs)
}

// TestRedriveKilledHalfWay kills redrives with kill -9 while jobs are on their way, and starts them again when the stream
// has long forgotten the ids of what was redriven: on the api's own ledger every job stands exactly once.
func TestRedriveKilledHalfWay(t *testing.T) {
	t.Parallel()
	const keys, each = 100, 12
	r := newRig(t, fakeapi.Options{KeepBody: 64}, `
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 20/s, capacity: 6}}
`)
	r.whilePaused(func() { // so that none of them makes room for the next
		var jobs []*nats.Msg
		for i := range keys * each {
			jobs = append(jobs, jobFor("pay", fmt.Sprint("k", i/each), fmt.Sprint("job-", i)))
		}
		fill(t, r.nc, jobs)
	})
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	letters, before := r.letterCount(), len(r.api.All())
	if letters+before != keys*each || letters != keys*each/2 {
		t.Fatalf("%d calls and %d letters of %d jobs", before, letters, keys*each)
	}
	killed := 0
	for _, rate := range []string{"20/s", "1000000/s", "1000/s"} { // few are on their way at once, which takes long, and then many
		if killed == 2 || letters == 0 {
			break
		}
		cmd := r.redriving("--rate", rate)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(before+1) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := await.Result(t, "the end of a killed redrive", cmd.Wait); err != nil {
			killed++ // else it had ended before
		}
		r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
		left := r.letterCount()
		t.Logf("killed with %d letters deleted and %d jobs called", letters-left, len(r.api.All())-before)
		before, letters = len(r.api.All()), left
	}
	if killed == 0 {
		t.Fatal("no redrive was killed half way")
	}
	if err := await.Result(t, "the last redrive", r.redriving("--rate", "300/s").Wait); err != nil {
		t.Errorf("the last redrive: %v", err)
	}
	r.awaitCalls(keys * each)
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	calls := r.perBody()
	for body, n := range calls {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	if len(calls) != keys*each || r.letterCount() != 0 {
		t.Errorf("%d of %d jobs were called, %d letters are left", len(calls), keys*each, r.letterCount())
	}
}

// TestOneRedriveAtOnce: a second redrive, or a purge, is refused while one is under way.
func TestOneRedriveAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	for i := range 4 {
		r.submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.awaitCalls(i + 1)
	}
	r.eventually("empty buckets", func() bool { return r.waiting("pay") == 0 })
	for i := range 4 {
		r.submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
	}
	first := r.redriving("--rate", "1/h")
	r.eventually("its first letter", func() bool {
		out, _ := r.command("dead", "ls", "--json")
		return strings.Contains(out, `"redrives":1`) && r.letterCount() == 4 // the one before it is deleted
	})
	if did, code := r.redrive(); code != cli.ExitRefused || did.Redriven+did.Overflowed != 0 {
		t.Errorf("a second redrive: exit code %d, %+v", code, did)
	}
	if _, code := r.command("dead", "purge", "--yes"); code != cli.ExitRefused || r.letterCount() != 4 {
		t.Errorf("a purge: exit code %d, %d letters are left", code, r.letterCount())
	}
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(await.Result(t, "the end of an interrupted redrive", first.Wait)); code != cli.ExitFailed {
		t.Errorf("a redrive that was interrupted ends with exit code %d", code)
	}
	if _, code := r.command("dead", "purge", "--yes"); code != 0 || r.letterCount() != 0 {
		t.Errorf("a purge behind it: exit code %d, %d letters are left", code, r.letterCount())
	}
}
