package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/embedded"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const restoreYAML = `
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
    limits: [{name: monthly, quota: 1000/month}]
`

// restoreRig is a weir whose store is backed up, lost, and put back as the runbook says.
type restoreRig struct {
	*killRig

	backup string
}

func newRestoreRig(t *testing.T, yaml string) *restoreRig {
	t.Helper()
	r := newKillRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64}, yaml)
	return &restoreRig{killRig: r, backup: filepath.Join(t.TempDir(), "backup")}
}

// submit hands a job in that the fake api knows by its id.
func (r *restoreRig) submit(api, key, id string) {
	r.t.Helper()
	r.publish(r.t.Context(), "weir.jobs."+api+"."+key, id, []byte(id))
}

// restart starts weir with flags of serve.
func (r *restoreRig) restart(flags ...string) error {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve"}, flags...)...)
	var err error
	r.proc, err = startCommand(r.t, cmd, r.env...)
	return err
}

func (r *restoreRig) mustRestart(flags ...string) {
	r.t.Helper()
	if err := r.restart(flags...); err != nil {
		r.t.Fatal(err)
	}
	await.Until(r.t, "the connection", func() bool { return r.nc.IsConnected() && r.nc.Flush() == nil })
}

func (r *restoreRig) stop() {
	r.t.Helper()
	if err := r.proc.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.proc.exited:
	case <-time.After(patience):
		r.t.Fatal("weir did not stop")
	}
}

// dataDir is where the weir has its store.
func (r *restoreRig) dataDir() string {
	for _, v := range r.env {
		if dir, ok := strings.CutPrefix(v, "WEIR_DATA_DIR="); ok {
			return dir
		}
	}
	panic("the rig has no data directory")
}

// copyTree is cp -a.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v: %s", err, out)
	}
}

// putBack loses the store and puts the backup in its place.
func (r *restoreRig) putBack() {
	r.t.Helper()
	if err := os.RemoveAll(r.dataDir()); err != nil {
		r.t.Fatal(err)
	}
	copyTree(r.t, r.backup, r.dataDir())
}

// calls are how often each job was called, by the fake api's own count.
func (r *restoreRig) calls() map[string]int {
	n := map[string]int{}
	for _, a := range r.api.All() {
		n[string(a.Body)]++
	}
	return n
}

func (r *restoreRig) awaitCalls(n int64) {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("%d calls", n), func() bool { return r.api.Totals().Ended >= n })
}

// details are what the letters say, by job.
func (r *restoreRig) details() map[string]string {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]string{}
	for _, msg := range (&rig{t: r.t, js: js}).stored("WEIR_DEAD", "weir.dead.>") {
		all[msg.Header.Get("Weir-Job-Id")] = msg.Header.Get("Weir-Dead-Detail")
	}
	return all
}

// TestRestoredBackup does what the runbook says. weir is stopped and its data directory copied; it goes on, is lost, and the copy is put back.
// The start is refused. With --restored no job is called twice that may not be, and every job of the backup is told of.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	r := newRestoreRig(t, restoreYAML)
	const jobs = 12
	for i := range jobs {
		r.submit("pay", fmt.Sprint("p", i%2), fmt.Sprint("pay-", i))
		r.submit("mail", fmt.Sprint("m", i%2), fmt.Sprint("mail-", i))
	}
	if _, err := r.nc.RequestMsg(&nats.Msg{Subject: "weir.jobs.pay.later", Data: []byte("pay-not-before"), Header: nats.Header{
		"Nats-Msg-Id": {"pay-not-before"}, "Weir-Path": {"/later"}, "Weir-Not-Before": {"1h"},
	}}, patience); err != nil {
		t.Fatal(err)
	}
	r.awaitCalls(6)
	r.stop()
	copyTree(t, r.dataDir(), r.backup)
	before := r.api.Totals().Ended

	r.mustRestart()
	r.submit("pay", "p0", "pay-later")
	r.awaitCalls(min(before+6, 2*jobs+1)) // a machine that was slow to hand the jobs in has called nearly all by now
	r.proc.kill()
	r.putBack()
	called := r.calls()

	err := r.restart()
	if err == nil || !strings.Contains(err.Error(), "is a copy of the one in which weir was last started") || !strings.Contains(err.Error(), "weir serve --restored") {
		t.Fatalf("the start on a backup ended with: %v", err)
	}
	r.mustRestart("--restored")
	await.Until(r.t, "every job of the backup to end", func() bool { return len(r.outcomes()) == 2*jobs })
	if got := r.outcomes()["pay-not-before"]; len(got) > 0 {
		t.Errorf("a job that cannot have been called ended as %v", got)
	}
	ended, details, parked := r.outcomes(), r.details(), 0
	for i := range jobs {
		pay, mail := fmt.Sprint("pay-", i), fmt.Sprint("mail-", i)
		if n := r.calls()[pay]; n > 1 || n != called[pay] {
			t.Errorf("%s was called %d times, and %d times before the restore", pay, n, called[pay])
		}
		switch got := ended[pay]; {
		case len(got) == 1 && got[0] == "done":
		case len(got) == 1 && got[0] == "unknown" && strings.HasPrefix(details[pay], "restored: the queue is a backup whose last call is of "):
			parked++
		default:
			t.Errorf("%s ended as %v: %s", pay, got, details[pay])
		}
		if got := ended[mail]; len(got) != 1 || got[0] != "done" || r.calls()[mail] == 0 {
			t.Errorf("%s ended as %v after %d calls", mail, got, r.calls()[mail])
		}
	}
	if parked < jobs-int(before) {
		t.Errorf("%d jobs of the backup were parked", parked)
	}
	r.submit("report", "r", "report-after")
	r.proc.kill()
	r.mustRestart() // it is known now
	r.submit("pay", "p0", "pay-after")
	await.Until(r.t, "the next job's call", func() bool { return r.calls()["pay-after"] == 1 })
	if n := r.calls()["report-after"]; n != 0 {
		t.Errorf("an api was called %d times whose quota of the month may be used up", n)
	}
	r.stop()
	r.mustRestart("--restored-counted")
	await.Until(r.t, "the call that the operator allowed", func() bool { return r.calls()["report-after"] == 1 })
}

// TestKilledWhileParking: a weir that dies in the middle of parking goes on with it at the next start, and calls none of the jobs.
func TestKilledWhileParking(t *testing.T) {
	t.Parallel()
	r := newRestoreRig(t, strings.ReplaceAll(restoreYAML, "rate: 4/s", "rate: 200/s"))
	const jobs = 2500
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range jobs / 50 {
				r.submit("pay", fmt.Sprint("p", i%5), fmt.Sprintf("pay-%d-%d", i, j))
			}
		})
	}
	await.Return(t, "the producers", all.Wait)
	r.stop()
	copyTree(t, r.dataDir(), r.backup)
	waiting := jobs - len(r.calls())
	if waiting < jobs/5 {
		t.Skipf("the machine was so slow that only %d jobs wait", waiting)
	}
	r.mustRestart()
	r.awaitCalls(r.api.Totals().Ended + 50)
	r.proc.kill()
	r.putBack()
	called := len(r.api.All())
	for starts := 1; ; starts++ {
		if starts == 1 {
			r.mustRestart("--restored")
		} else {
			r.mustRestart()
		}
		if starts > 3 {
			await.Until(r.t, "every letter", func() bool { return r.queued() == 0 })
			break
		}
		n := len(r.details())
		await.Until(r.t, "some letters", func() bool { return len(r.details()) > n || r.queued() == 0 })
		r.proc.kill()
	}
	if n := len(r.api.All()); n != called {
		t.Errorf("%d calls were made after the restore", n-called)
	}
	if n := len(r.details()); n > waiting || n == 0 {
		t.Errorf("there are %d letters of %d jobs", n, waiting)
	}
}

// TestRestoredStreams: streams of a server elsewhere that were put back from a backup are told by what was noted beside them, and so is a
// server that holds nothing any more.
func TestRestoredStreams(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	store := filepath.Join(t.TempDir(), "nats")
	serverAt := func(dir string) (stop func()) {
		t.Helper()
		server, err := embedded.Start(t.Context(), embedded.Options{MaxStore: roomy, Listen: addr, Dir: dir, SyncAlways: true, MaxPayload: 1 << 20, Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		return server.Shutdown
	}
	stop := serverAt(store)
	t.Cleanup(func() { stop() })
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "weir.yaml"), fmt.Sprintf("apis:\n  pay:\n    url: %s\n    bucket: {rate: 4/s, capacity: 100}\n", api.URL()))
	nc, err := nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &restoreRig{killRig: &killRig{t: t, api: api, nc: nc, addr: addr, acks: map[string]bool{}, env: []string{
		"WEIR_CONFIG=" + filepath.Join(dir, "weir.yaml"), "WEIR_NATS_URL=nats://" + addr, "WEIR_REPLICAS=1", "WEIR_HTTP_LISTEN=",
		"WEIR_STATE_DIR=" + filepath.Join(dir, "state"), "WEIR_PARTITIONS=2",
	}}}
	t.Cleanup(func() { r.proc.kill() })
	r.mustRestart()
	for i := range 10 {
		r.submit("pay", "k", fmt.Sprint("pay-", i))
	}
	r.awaitCalls(2)
	r.stop()
	stop()
	backup := store + ".backup"
	copyTree(t, store, backup)
	stop = serverAt(store)
	r.mustRestart()
	r.awaitCalls(4)
	r.proc.kill()
	stop()
	stop = serverAt(store + ".empty")
	if err := r.restart(); err == nil || !strings.Contains(err.Error(), "no weir was ever started on this store") {
		t.Fatalf("a start on a server that lost all ended with: %v", err)
	}
	stop()
	stop = serverAt(backup)
	called := len(r.api.All())
	if err := r.restart(); err == nil || !strings.Contains(err.Error(), "weir was started 1 times on this store") {
		t.Fatalf("a start on restored streams ended with: %v", err)
	}
	r.mustRestart("--restored")
	await.Until(r.t, "the letters", func() bool { return r.queued() == 0 })
	if n := len(r.api.All()); n != called {
		t.Errorf("%d calls were made after the restore", n-called)
	}
	r.stop()
	r.mustRestart()
}
