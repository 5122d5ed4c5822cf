package replicas

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// TestServerWithoutCopies checks on three NATS servers that `weir doctor` names a server that is stopped, and a server
// that starts without a stream because the stream's Raft snapshot is damaged. The finding goes when that server has its
// streams again with all their messages, which the advised remedy gives it. `weir status` still answers when one server is left, and says that
// streams have no leader.
func TestServerWithoutCopies(t *testing.T) {
	t.Parallel()
	var routes, urls []string
	for range 3 {
		routes = append(routes, "nats://"+servers.FreePort(t))
	}
	last := filepath.Join(t.TempDir(), "n2")
	start := func(i int, dir string) *server.Server {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), JetStream: true, Cluster: server.ClusterOpts{Name: "c"}}
		return servers.StartNATS(t, servers.Clustered(opts, routes, i, dir))
	}
	cluster := []*server.Server{start(0, t.TempDir()), start(1, t.TempDir()), start(2, last)}
	for _, s := range cluster[:2] {
		urls = append(urls, s.ClientURL())
	}
	servers.AwaitCluster(t, cluster)
	url := strings.Join(urls, ",")
	weirtest.NewReplicas(t, url, 1, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/s, capacity: 5}\n", "WEIR_REPLICAS=3", "WEIR_PARTITIONS=1")
	doctor := func() string { return program.Command(t, []string{"WEIR_NATS_URL=" + url}, "doctor").Stdout }
	awaitFinding := func(what string, found func(lines string) bool) (lines string) {
		t.Helper()
		await.Until(t, what, func() bool {
			lines = ""
			for line := range strings.Lines(doctor()) {
				if strings.Contains(line, "current copy of") {
					lines += line
				}
			}
			return found(lines)
		})
		return lines
	}

	cluster[2].Shutdown()
	cluster[2].WaitForShutdown()
	const streams = 8 // those of all apis, and the queue
	away := fmt.Sprintf("NATS server n2, which other servers do not reach, lacks a current copy of %d streams since ", streams)
	said := awaitFinding("a finding about a server that is stopped", func(lines string) bool { return strings.Contains(lines, away) })
	for _, want := range []string{"WEIR_RESULTS has 2 of 3", "WEIR_pay_0 has 2 of 3", "KV_weir_control has 2 of 3"} {
		if !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("it does not say %q, or more: %s", want, said)
		}
	}
	const empties = "empty its store"
	if strings.Contains(said, empties) {
		t.Errorf("a stopped server's store is to be emptied: %s", said)
	}

	snapshots, err := filepath.Glob(filepath.Join(last, "jetstream", "*", "_js_", "S-*", "snapshots", "snap.*"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("no snapshots of streams (%v)", err)
	}
	data, err := os.ReadFile(snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(snapshots[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster[2] = start(2, last)
	awaitFinding("a finding about a stream that a server could not start", func(lines string) bool {
		return strings.Contains(lines, "NATS server n2 lacks a current copy of 1 stream since ") && !strings.Contains(lines, "stop it, "+empties)
	})
	if all, has := raftGroups(t, cluster[0]), raftGroups(t, cluster[2]); has != all-1 {
		t.Errorf("the server is a member of %d Raft groups, the others of %d", has, all)
	}

	cluster[2].Shutdown()
	cluster[2].WaitForShutdown()
	if err := os.RemoveAll(last); err != nil {
		t.Fatal(err)
	}
	cluster[2] = start(2, last)
	want := contents(t, cluster[0])
	if len(want) != streams {
		t.Errorf("a server has %d streams, want %d: %v", len(want), streams, want)
	}
	await.Until(t, "the streams of the other servers, with all messages", func() bool {
		return cluster[2].Healthz(nil).Status == "ok" && maps.Equal(contents(t, cluster[2]), contents(t, cluster[0]))
	})
	await.Until(t, "the end of the finding", func() bool {
		text := doctor()
		return strings.Contains(text, "weir runs and is healthy: 1 api, dispatched by 1 replica") && !strings.Contains(text, "current copy of")
	})

	for _, s := range cluster[1:] {
		s.Shutdown()
		s.WaitForShutdown()
	}
	await.Until(t, "a finding about streams without a leader", func() bool {
		got := program.Command(t, []string{"WEIR_NATS_URL=" + url}, "status")
		return strings.Contains(got.Stdout, "no leader has answered for ") && !strings.Contains(got.Stdout, "stop it, "+empties)
	})
}

// raftGroups returns of how many Raft groups a server is a member: one for each of its streams, and the cluster's.
func raftGroups(t *testing.T, s *server.Server) int {
	t.Helper()
	info, err := s.Jsz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return info.HAAssets
}

// contents returns the first and last sequence and the number of messages of each stream that a server stores.
func contents(t *testing.T, s *server.Server) map[string]string {
	t.Helper()
	info, err := s.Jsz(&server.JSzOptions{Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]string{}
	for _, account := range info.AccountDetails {
		for i := range account.Streams {
			state := &account.Streams[i].State
			streams[account.Streams[i].Name] = fmt.Sprintf("%d to %d, %d messages", state.FirstSeq, state.LastSeq, state.Msgs)
		}
	}
	return streams
}
