package letters

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
)

// TestRedrivenJobIsLow: a redriven job waits behind the jobs that come, unless --priority says otherwise.
func TestRedrivenJobIsLow(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay: {url: %s, bucket: {rate: 50/s, capacity: 3}}\n")
	if said, code := r.CLI().Run("dead", "redrive", "--rate", "", "--yes"); code != cli.ExitUsage {
		t.Errorf("an empty rate: exit code %d\n%s", code, said)
	}
	if said, code := r.CLI().Run("dead", "redrive", "--priority", "urgent", "--yes"); code != cli.ExitUsage {
		t.Errorf("a priority that is none: exit code %d, %s", code, said)
	}
	for _, c := range []struct{ said, want string }{{"", "low"}, {"normal", ""}, {"high", "high"}} {
		r.WhilePaused(func() {
			for n := range 4 {
				r.Producer().Submit("weir.jobs.pay.k", []byte("job"), map[string]string{"Nats-Msg-Id": fmt.Sprintf("job%s-%d", c.said, n), "Weir-Priority": "high"})
			}
		})
		r.Eventually("three calls, and a letter", func() bool {
			return r.Store().Waiting("pay") == 0 && r.Store().Messages(deadletter.Stream) == 1
		})
		r.WhilePaused(func() {
			args := []string{"--reason", "overflow"}
			if c.said != "" {
				args = append(args, "--priority", c.said)
			}
			if did, code := r.CLI().Redrive(args...); code != 0 || did.Redriven != 1 {
				t.Fatalf("--priority %q: exit code %d, %+v", c.said, code, did)
			}
			var shown admin.KeyShown
			r.Eventually("the job waits", func() bool {
				text, code := r.CLI().Run("show", "pay", "k", "--json")
				return code == 0 && json.NewDecoder(strings.NewReader(text)).Decode(&shown) == nil && len(shown.Next) == 1
			})
			if got := shown.Next[0].Priority; got != c.want {
				t.Errorf("--priority %q: the redriven job has priority %q, want %q", c.said, got, c.want)
			}
		})
		r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	}
}
