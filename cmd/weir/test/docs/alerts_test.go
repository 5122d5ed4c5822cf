package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// TestEveryAlertHasAHistory: each alert fires in some history, and stays silent in some.
func TestEveryAlertHasAHistory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(weirtest.DeployDir, "prometheus")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(weirtest.MustRead(t, filepath.Join(dir, "alerts.yaml")), -1)
	if len(alerts) < 23 {
		t.Errorf("only %d alerts were found: mend this test", len(alerts))
	}
	histories := weirtest.MustRead(t, filepath.Join(dir, "alerts_test.yaml"))
	for _, a := range alerts {
		if !strings.Contains(histories, "alertname: "+a[1]+"\n") || !strings.Contains(histories, "alertname: "+a[1]+"}") {
			t.Errorf("%s has no history in which it fires, or none in which it stays silent", a[1])
		}
	}
}
