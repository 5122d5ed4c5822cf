package docs

import (
	"os/exec"
	"path/filepath"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestAlertsTellHistoriesApart has Prometheus' own tool play histories to the alerts: a hand-over is no loss of a replica, and a letter
// counts that was parked before a replica was first looked at.
func TestAlertsTellHistoriesApart(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not there: `make test` installs it")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(await.Context(t, "promtool"), promtool, args...)
		cmd.Dir = filepath.Join(weirtest.DeployDir, "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
