package soak

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

var restoreYAML = `
apis:
  pay:
    url: %[1]s
    bucket: {rate: 4/s, capacity: 10000}
  mail:
    url: %[1]s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 4/s, capacity: 10000}
    limits: [{name: account, rate: 4/s}]
  report:
    url: %[1]s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 4/s, capacity: 10000}
    limits: [{name: monthly, quota: 1000/month, tz: ` + machine.Noon() + `}]
`

func newRestoreRig(t *testing.T, yaml string) *weirtest.RestoreRig {
	t.Helper()
	r := weirtest.NewKillRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64}, yaml)
	return &weirtest.RestoreRig{KillRig: r, Backup: filepath.Join(t.TempDir(), "backup")}
}

// TestRestoredBackup follows the runbook. weir is stopped and its data directory copied; weir continues, is lost, and
// the copy is restored. The start is refused. With --restored no job is called twice that must not be, and every job of
// the backup is reported.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	r := newRestoreRig(t, restoreYAML)
	const jobs = 12
	for i := range jobs {
		r.Submit("pay", fmt.Sprint("p", i%2), fmt.Sprint("pay-", i))
		r.Submit("mail", fmt.Sprint("m", i%2), fmt.Sprint("mail-", i))
	}
	if _, err := r.NC.RequestMsg(&nats.Msg{Subject: "weir.jobs.pay.later", Data: []byte("pay-not-before"), Header: nats.Header{
		"Nats-Msg-Id": {"pay-not-before"}, "Weir-Path": {"/later"}, "Weir-Not-Before": {"1h"},
	}}, weirtest.Patience); err != nil {
		t.Fatal(err)
	}
	r.AwaitCalls(6)
	r.Stop()
	weirtest.CopyTree(t, r.DataDir(), r.Backup)
	before := r.API.Totals().Ended

	r.MustRestart()
	r.Submit("pay", "p0", "pay-later")
	r.AwaitCalls(min(before+6, 2*jobs+1)) // a machine that was slow to hand the jobs in has called nearly all by now
	r.Proc.Kill()
	r.PutBack()
	called := r.Calls()

	err := r.Restart()
	if err == nil || !strings.Contains(err.Error(), "is a copy of the one in which weir was last started") || !strings.Contains(err.Error(), "weir serve --restored") {
		t.Fatalf("the start on a backup ended with: %v", err)
	}
	r.MustRestart("--restored")
	await.Until(r.T, "every job of the backup to end", func() bool { return len(r.Outcomes()) == 2*jobs })
	if got := r.Outcomes()["pay-not-before"]; len(got) > 0 {
		t.Errorf("a job that cannot have been called ended as %v", got)
	}
	ended, details, parked := r.Outcomes(), r.Details(), 0
	for i := range jobs {
		pay, mail := fmt.Sprint("pay-", i), fmt.Sprint("mail-", i)
		if n := r.Calls()[pay]; n > 1 || n != called[pay] {
			t.Errorf("%s was called %d times, and %d times before the restore", pay, n, called[pay])
		}
		switch got := ended[pay]; {
		case len(got) == 1 && got[0] == "done":
		case len(got) == 1 && got[0] == "unknown" && strings.HasPrefix(details[pay], "restored: the queue is a backup whose last call is of "):
			parked++
		default:
			t.Errorf("%s ended as %v: %s", pay, got, details[pay])
		}
		if got := ended[mail]; len(got) != 1 || got[0] != "done" || r.Calls()[mail] == 0 {
			t.Errorf("%s ended as %v after %d calls", mail, got, r.Calls()[mail])
		}
	}
	if parked < jobs-int(before) {
		t.Errorf("%d jobs of the backup were parked", parked)
	}
	r.Submit("report", "r", "report-after")
	r.Proc.Kill()
	r.MustRestart() // it is known now
	r.Submit("pay", "p0", "pay-after")
	await.Until(r.T, "the next job's call", func() bool { return r.Calls()["pay-after"] == 1 })
	if n := r.Calls()["report-after"]; n != 0 {
		t.Errorf("an api was called %d times whose quota of the month may be used up", n)
	}
	r.Stop()
	r.MustRestart("--restored-counted")
	await.Until(r.T, "the call that the operator allowed", func() bool { return r.Calls()["report-after"] == 1 })
}

// TestKilledWhileParking: a weir that dies in the middle of parking goes on with it at the next start, and calls none of the jobs.
func TestKilledWhileParking(t *testing.T) {
	t.Parallel()
	r := newRestoreRig(t, restoreYAML)
	const jobs = 2500 // and 20 calls a second
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range jobs / 50 {
				r.Submit("pay", fmt.Sprint("p", i%5), fmt.Sprintf("pay-%d-%d", i, j))
			}
		})
	}
	await.Return(t, "the producers", all.Wait)
	r.Stop()
	weirtest.CopyTree(t, r.DataDir(), r.Backup)
	before := len(r.Calls())
	r.MustRestart()
	r.AwaitCalls(r.API.Totals().Ended + 50)
	r.Proc.Kill()
	r.PutBack()
	called := len(r.API.All())
	for starts := 1; ; starts++ {
		if starts == 1 {
			r.MustRestart("--restored")
		} else {
			r.MustRestart()
		}
		if starts > 3 {
			await.Until(r.T, "every letter", func() bool { return r.Queued() == 0 })
			break
		}
		n := len(r.Details())
		await.Until(r.T, "some letters", func() bool { return len(r.Details()) > n || r.Queued() == 0 })
		r.Proc.Kill()
	}
	if n := len(r.API.All()); n != called {
		t.Errorf("%d calls were made after the restore", n-called)
	}
	if n, waiting := len(r.Details()), jobs-before; n > waiting || n == 0 {
		t.Errorf("there are %d letters of %d jobs", n, waiting)
	}
}
