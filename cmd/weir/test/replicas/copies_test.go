package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// TestServerWithoutCopies checks on three NATS servers that `weir doctor` names a server that is stopped, and a server
// that starts without streams because their Raft snapshots are damaged. The finding goes when that server has its
// copies again, which the advised remedy gives it.
func TestServerWithoutCopies(t *testing.T) {
	t.Parallel()
	var routes, urls []string
	for range 3 {
		routes = append(routes, "nats://"+weirtest.FreePort(t))
	}
	last := filepath.Join(t.TempDir(), "n2")
	start := func(i int, dir string) *server.Server {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), JetStream: true, Cluster: server.ClusterOpts{Name: "c"}}
		return weirtest.StartNATS(t, weirtest.Clustered(opts, routes, i, dir))
	}
	servers := []*server.Server{start(0, t.TempDir()), start(1, t.TempDir()), start(2, last)}
	for _, s := range servers[:2] {
		urls = append(urls, s.ClientURL())
	}
	weirtest.AwaitCluster(t, servers)
	url := strings.Join(urls, ",")
	weirtest.NewReplicas(t, url, 1, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/s, capacity: 5}\n", "WEIR_REPLICAS=3", "WEIR_PARTITIONS=1")
	awaitFinding := func(what string, found func(lines string) bool) (lines string) {
		t.Helper()
		await.Until(t, what, func() bool {
			lines = ""
			for line := range strings.Lines(weirtest.Command(t, []string{"WEIR_NATS_URL=" + url}, "doctor").Stdout) {
				if strings.Contains(line, "current copy of") {
					lines += line
				}
			}
			return found(lines)
		})
		return lines
	}

	servers[2].Shutdown()
	servers[2].WaitForShutdown()
	const streams = 8 // those of all apis, and the queue
	away := fmt.Sprintf("NATS server n2, which the others do not reach, lacks a current copy of %d streams since ", streams)
	said := awaitFinding("a finding about a server that is stopped", func(lines string) bool { return strings.Contains(lines, away) })
	for _, want := range []string{"WEIR_RESULTS has 2 of 3", "WEIR_pay_0 has 2 of 3", "KV_weir_control has 2 of 3"} {
		if !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("it does not say %q, or more: %s", want, said)
		}
	}

	damaged, err := filepath.Glob(filepath.Join(last, "jetstream", "*", "_js_", "S-*", "snapshots", "snap.*"))
	if err != nil || len(damaged) == 0 {
		t.Fatalf("no snapshots of streams (%v)", err)
	}
	for _, file := range damaged {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	servers[2] = start(2, last)
	without := fmt.Sprintf("NATS server n2 lacks a current copy of %d stream", len(damaged))
	awaitFinding("a finding about streams that a server could not start", func(lines string) bool { return strings.Contains(lines, without) })

	servers[2].Shutdown()
	servers[2].WaitForShutdown()
	if err := os.RemoveAll(last); err != nil {
		t.Fatal(err)
	}
	servers[2] = start(2, last)
	awaitFinding("the end of the finding", func(lines string) bool { return lines == "" })
}
