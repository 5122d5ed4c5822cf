package intake

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/micro"
)

// natsCLI is NATS' own command line, built from source by `make natscli`.
func natsCLI(t *testing.T) string {
	t.Helper()
	built, err := filepath.Glob(filepath.Join(weirtest.Repository, "bin", "tools", "nats-v*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(built) > 0 {
		return built[len(built)-1]
	}
	found, err := exec.LookPath("nats")
	if err != nil {
		t.Skip("there is no nats here: `make natscli` builds it")
	}
	return found
}

// TestNATSCommandLine uses NATS' own tools beside a running weir, without credentials: they hand jobs in, show the service and the
// streams, and judge them by the marks that weir gives its streams. Refusals are errors to them.
func TestNATSCommandLine(t *testing.T) {
	t.Parallel()
	tool := natsCLI(t)
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  tiny:
    url: %s
    bucket: {rate: 1/h, capacity: 2}
  wide:
    url: %[1]s
    bucket: {rate: 1/h, capacity: 1000}
`)
	nats := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(await.Context(t, "nats "+args[0]), tool, append([]string{"--server", r.Worker.NATSURL(), "--no-context"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%s\n%v", out, err)
		}
		return string(out)
	}
	wants := func(said string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(said, part) {
				t.Errorf("%q is not in\n%s", part, said)
			}
		}
	}
	for _, api := range []string{"tiny", "wide"} {
		if said, code := r.CLI().Run("pause", api); code != 0 {
			t.Fatal(said)
		}
	}

	wants(nats("pub", "weir.jobs.tiny.k", "1"), "Published 1 bytes")
	r.Eventually("the published job", func() bool { return r.Store().Waiting("tiny") == 1 })
	wants(nats("req", "weir.jobs.tiny.k", "2", "-H", "Nats-Msg-Id:order-2"), `"stream":"WEIR_tiny_`, `"job":"order-2","key":"k","position":2`)
	wants(nats("req", "weir.jobs.tiny.k", "2", "-H", "Nats-Msg-Id:order-2"), `"duplicate":true`)
	wants(nats("req", "weir.jobs.tiny.k", "3"), "Nats-Service-Error-Code: 429", "Nats-Service-Error: bucket full: tiny/k holds 2 of 2; try again in", `"dead_letter_seq":1`)

	queue := r.Producer().Submit("weir.jobs.wide.k", nil, nil).Stream
	wants(nats("bench", "js", "pub", "async", "weir.jobs.wide.k", "--stream", queue, "--msgs", "200", "--size", "64", "--no-progress"), "publisher stats: ")
	wants(nats("bench", "js", "pub", "sync", "weir.jobs.wide.k", "--stream", queue, "--msgs", "20", "--size", "64", "--no-progress"), "publisher stats: ")
	if n := r.Store().Waiting("wide"); n != 221 {
		t.Errorf("%d jobs of 221 are queued", n)
	}
	wants(nats("bench", "js", "pub", "sync", "weir.jobs.tiny.k", "--stream", queue, "--msgs", "5", "--size", "64", "--no-progress"),
		"err_code=20429 description=bucket full: tiny/k holds 2 of 2; try again in")

	wants(nats("micro", "ls"), "weir ", "takes jobs for rate-limited apis")
	wants(nats("micro", "info", "weir"), "weir.jobs.>", `Last Error: 429:bucket full: tiny/k holds 2 of 2`)
	var told []micro.Stats
	if said := nats("micro", "stats", "weir", "--json"); json.Unmarshal([]byte(said), &told) != nil || len(told) != 1 {
		t.Errorf("micro stats: %s", said)
	} else if jobs := told[0].Endpoints[0]; jobs.NumRequests != 226 || jobs.NumErrors != 2 {
		t.Errorf("micro stats counts %d requests and %d errors, of 226 and 2", jobs.NumRequests, jobs.NumErrors)
	}
	wants(nats("stream", "ls"), "WEIR_DEAD", "WEIR_RESULTS", "weir: dead letters", queue)
	wants(nats("stream", "info", "WEIR_DEAD"), "weir.dead.>", "io.nats.monitor.enabled: 1")
	wants(nats("stream", "get", "WEIR_DEAD", "1"), "weir.dead.tiny.overflow.k", "Weir-Dead-Reason: overflow")
	wants(nats("server", "check", "stream", "--stream", "WEIR_DEAD"), "OK WEIR_DEAD")
	wants(nats("server", "check", "stream", "--stream", queue), "OK "+queue)
	wants(nats("server", "check", "message", "--stream", "WEIR_DEAD", "--subject", "weir.dead.tiny.overflow.k", "--age-critical", "1h"), "OK Stream Message")
	wants(nats("server", "check", "jetstream"), "OK JetStream")
}

// TestNATSChecksACluster: the marks that weir gives its streams let NATS' own check judge those of a cluster, and it sees a lost server.
func TestNATSChecksACluster(t *testing.T) {
	t.Parallel()
	tool := natsCLI(t)
	url, servers := servers.ThreeServers(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:9\n    bucket: {rate: 1/s, capacity: 5}\n")
	p, err := program.StartProcess(t, "WEIR_CONFIG="+file, "WEIR_NATS_URL="+url, "WEIR_HTTP_LISTEN=", "WEIR_REPLICAS=3", "WEIR_PARTITIONS=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	check := func(stream string) string {
		out, err := exec.CommandContext(await.Context(t, "nats server check"), tool, "--server", url, "--no-context", "server", "check", "stream", "--stream", stream).CombinedOutput()
		return fmt.Sprintf("%s %v", out, err)
	}
	for _, stream := range []string{"WEIR_DEAD", "WEIR_RESULTS", "WEIR_CALLS", "WEIR_EVENTS", "WEIR_pay_0", "KV_weir_config", "KV_weir_control", "KV_weir_leases"} {
		said := ""
		await.Until(t, "a healthy "+stream, func() bool { said = check(stream); return strings.Contains(said, "OK "+stream) })
		if !strings.Contains(said, "3 peers") {
			t.Errorf("%s: %s", stream, said)
		}
	}
	servers[2].Shutdown()
	await.Until(t, "a word of the server that is gone", func() bool { return strings.Contains(check("WEIR_DEAD"), "CRITICAL WEIR_DEAD") })
}
