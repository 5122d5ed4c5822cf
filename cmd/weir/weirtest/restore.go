package weirtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// RestoreRig is a weir whose store is backed up, lost, and restored as the runbook says.
type RestoreRig struct {
	*KillRig

	Backup string
}

// Submit submits a job whose body is its id.
func (r *RestoreRig) Submit(api, key, id string) {
	r.T.Helper()
	r.Publish(r.T.Context(), "weir.jobs."+api+"."+key, id, []byte(id))
}

// Restart starts weir serve with flags.
func (r *RestoreRig) Restart(flags ...string) error {
	r.T.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve"}, flags...)...)
	var err error
	r.Proc, err = program.StartCommand(r.T, cmd, r.Env...)
	return err
}

func (r *RestoreRig) MustRestart(flags ...string) {
	r.T.Helper()
	if err := r.Restart(flags...); err != nil {
		r.T.Fatal(err)
	}
	await.Until(r.T, "the connection", func() bool { return r.NC.IsConnected() && r.NC.Flush() == nil })
}

func (r *RestoreRig) Stop() {
	r.T.Helper()
	if err := r.Proc.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.T.Fatal(err)
	}
	select {
	case <-r.Proc.Exited:
	case <-time.After(Patience):
		r.T.Fatal("weir did not stop")
	}
}

// DataDir returns the directory of the weir's store.
func (r *RestoreRig) DataDir() string {
	for _, v := range r.Env {
		if dir, ok := strings.CutPrefix(v, "WEIR_DATA_DIR="); ok {
			return dir
		}
	}
	panic("the rig has no data directory")
}

// PutBack deletes the store and restores the backup in its place.
func (r *RestoreRig) PutBack() {
	r.T.Helper()
	if err := os.RemoveAll(r.DataDir()); err != nil {
		r.T.Fatal(err)
	}
	CopyTree(r.T, r.Backup, r.DataDir())
}

// Calls returns how often each job was called, according to the fake api.
func (r *RestoreRig) Calls() map[string]int {
	n := map[string]int{}
	for _, a := range r.API.All() {
		n[string(a.Body)]++
	}
	return n
}

func (r *RestoreRig) AwaitCalls(n int64) {
	r.T.Helper()
	await.Until(r.T, fmt.Sprintf("%d calls", n), func() bool { return r.API.Totals().Ended >= n })
}

// Details returns the details of all letters, by job.
func (r *RestoreRig) Details() map[string]string {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	all := map[string]string{}
	for _, msg := range (&Rig{T: r.T, JS: js}).Store().Stored("WEIR_DEAD", "weir.dead.>") {
		all[msg.Header.Get("Weir-Job-Id")] = msg.Header.Get("Weir-Dead-Detail")
	}
	return all
}
