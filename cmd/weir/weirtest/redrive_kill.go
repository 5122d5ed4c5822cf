package weirtest

import (
	"os"
	"os/exec"

	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// Redriving starts a redrive in a process of its own, which can be killed. That process does the work itself.
func (r *Rig) Redriving(args ...string) *exec.Cmd {
	r.T.Helper()
	cmd := exec.CommandContext(await.Context(r.T, "a redrive"), os.Args[0], append([]string{"dead", "redrive", "--yes", "--here"}, args...)...)
	cmd.Env = append(Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.Worker.NATSURL())
	if err := cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	return cmd
}

// LetterCount returns how many letters there are.
func (r *Rig) LetterCount() int {
	r.T.Helper()
	s, err := r.JS.Stream(r.T.Context(), deadletter.Stream)
	if err != nil {
		r.T.Fatal(err)
	}
	info, err := s.Info(r.T.Context(), jetstream.WithSubjectFilter("weir.dead.>"))
	if err != nil {
		r.T.Fatal(err)
	}
	return int(info.State.Msgs)
}
