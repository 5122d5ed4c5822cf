package program

import (
	"bytes"
	"os"
	"os/exec"
	"strings"

	"weir/ingest/await"
)

// SubmitFile starts `weir submit --file` as a process of its own.
func (c CLI) SubmitFile(out *bytes.Buffer, args ...string) *exec.Cmd {
	c.T.Helper()
	cmd := exec.CommandContext(await.Context(c.T, "jobs to be handed in"), os.Args[0], append([]string{"submit", "--file"}, args...)...)
	cmd.Env = append(Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+c.NATS)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	return cmd
}

// journaled returns how many jobs a journal records as taken.
func (c CLI) journaled(file string) int {
	text, err := os.ReadFile(file + ".journal")
	if err != nil {
		return 0
	}
	return strings.Count(string(text), " taken ")
}

// KillSubmission submits a file and kills the command when at least upTo jobs have receipts.
func (c CLI) KillSubmission(file string, upTo int) {
	c.T.Helper()
	var out bytes.Buffer
	cmd := c.SubmitFile(&out, file, "credit")
	await.Until(c.T, "jobs that were taken", func() bool { return c.journaled(file) >= upTo })
	if err := cmd.Process.Kill(); err != nil {
		c.T.Fatal(err)
	}
	if err := await.Result(c.T, "the end of a run that was killed", cmd.Wait); err == nil {
		c.T.Fatalf("the run had ended before it was killed: %s", out.String())
	}
}
