package program

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/verify"
	"weir/deadletter"
	"weir/dispatcher/inquiry"
)

// CLI runs commands of weir against one server, as an operator does.
type CLI struct {
	T    *testing.T
	NATS string // address of the server
}

// Run runs a command of weir against the server. It returns the output and the exit code.
func (c CLI) Run(args ...string) (stdout string, code int) {
	c.T.Helper()
	did := Command(c.T, []string{"WEIR_NATS_URL=" + c.NATS}, args...)
	if did.Code != 0 {
		c.T.Logf("weir %v ends with %d: %s", args, did.Code, did.Stderr)
	}
	return did.Stdout, did.Code
}

// Must runs a command that must succeed, and returns its output.
func (c CLI) Must(args ...string) string {
	c.T.Helper()
	out, code := c.Run(args...)
	if code != 0 {
		c.T.Fatalf("weir %v ends with %d: %s", args, code, out)
	}
	return out
}

// Redrive runs `weir dead redrive` against the server. It returns the tally and the exit code.
func (c CLI) Redrive(args ...string) (did deadletter.Tally, code int) {
	c.T.Helper()
	out, code := c.Run(append([]string{"dead", "redrive", "--yes", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &did); err != nil {
			c.T.Fatalf("%s: %v", out, err)
		}
	}
	return did, code
}

// Skips returns how many letters of a key a redrive would skip, by reason.
func (c CLI) Skips(key string) map[deadletter.Skip]int {
	out, _ := c.Run("dead", "redrive", "--key", key, "--dry-run", "--json")
	var plan deadview.RedrivePlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		c.T.Fatalf("%s: %v", out, err)
	}
	return plan.Skipped
}

// Task returns the state of a redrive.
func (c CLI) Task(name string) deadview.RedriveTask {
	c.T.Helper()
	out, code := c.Run("dead", "task", name, "--json")
	var told deadview.RedriveTask
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != 0 {
		c.T.Fatalf("%s: exit code %d, %v", out, code, err)
	}
	return told
}

// Reconciled is the output of "weir dead reconcile --json".
type Reconciled struct {
	Letters    int
	Done       int
	Redriven   int
	Overflowed int
	Stays      int
	Gone       int
	Skipped    map[string]int
	Each       []inquiry.Reconciled
}

func (c CLI) Reconcile(args ...string) (did Reconciled, code int) {
	c.T.Helper()
	out, code := c.Run(append([]string{"dead", "reconcile", "--yes", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &did); err != nil {
			c.T.Fatalf("%s: %v", out, err)
		}
	}
	return did, code
}

// Verify runs `weir verify` against the server. It returns the report on each api, and the exit code.
func (c CLI) Verify(args ...string) (found map[string]verify.Report, code int) {
	c.T.Helper()
	out, code := c.Run(append([]string{"verify", "--json"}, args...)...)
	found = map[string]verify.Report{}
	for line := range strings.Lines(out) {
		var v verify.Report
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			c.T.Fatalf("%s: %v", line, err)
		}
		found[v.API] = v
	}
	return found, code
}

func LimitFound(t *testing.T, v verify.Report, name string) verify.LimitReport {
	t.Helper()
	for _, l := range v.Limits {
		if l.Limit == name {
			return l
		}
	}
	t.Fatalf("nothing is said of limit %s: %+v", name, v)
	return verify.LimitReport{}
}

// Shown reports whether `weir job` prints a text about a job.
func (c CLI) Shown(job, what string) bool {
	out, code := c.Run("job", job)
	return code == 0 && strings.Contains(out, what)
}
