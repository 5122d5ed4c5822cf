package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startCluster runs three nats-servers, and returns when they have a leader that knows them all.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	var servers []*server.Server
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+freePort(t))
	}
	for i := range 3 {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), JetStream: true}
		opts.Cluster.Name = "c"
		servers = append(servers, startNATS(t, clustered(opts, routes, i, t.TempDir())))
	}
	awaitCluster(t, servers)
	return servers
}

func awaitCluster(t *testing.T, servers []*server.Server) {
	t.Helper()
	(&rig{t: t}).eventually("a leader that knows the others", func() bool {
		return slices.ContainsFunc(servers, func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == len(servers) })
	})
}

// startTarget runs a single nats-server.
func startTarget(t *testing.T) string {
	t.Helper()
	return startNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20,
	}).ClientURL()
}

const moveYAML = `
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    jitter: 60ms
    bucket: {rate: 4/s, capacity: 12, in_flight: 1}
    limits: [{name: all, rate: 100/s}, {name: daily, quota: 5000/day}]
    retry: {attempts: 3, min: 3s, max: 3s}
`

// TestMoveToACluster moves a weir with jobs in every state to three servers: each job is called as often as it would
// have been, in its order; ids, letters and the ledger go on where they were.
func TestMoveToACluster(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, map[string][]string{"again": {"status=500"}, "bad": {"status=400"}})
	r := &rig{t: t, api: api, dir: t.TempDir(), yaml: fmt.Sprintf(moveYAML, api.URL())}
	r.start()
	t.Cleanup(r.stop)
	send := func(key, id string) answer {
		return r.submit("weir.jobs.pay."+key, []byte(id), map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + key})
	}
	first := map[string]answer{}
	r.putPause("")
	for n := range 12 {
		for k := range 4 {
			id := fmt.Sprintf("k%d-%d", k, n)
			first[id] = send(fmt.Sprint("k", k), id)
		}
	}
	send("again", "again-0")
	send("bad", "bad-0")
	overflow := send("k0", "one too many")
	if overflow.Error == nil || overflow.Letter == 0 {
		t.Fatalf("no overflow: %+v", overflow)
	}
	consumer := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := r.js.CreateConsumer(t.Context(), "WEIR_RESULTS", consumer); err != nil {
		t.Fatal(err)
	}
	if err := r.control().Delete(t.Context(), control.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.awaitCalls(10)
	r.stop()
	before := len(api.All())
	if before >= 50 {
		t.Fatal("nothing waits any more: the test is too slow for its rates")
	}

	servers := startCluster(t)
	url := servers[0].ClientURL()
	data := filepath.Join(r.dir, "data")
	got := command(t, nil, "move", "--from", data, "--to", url)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	t.Log(got.stderr + got.stdout)
	if got := command(t, nil, "move", "--from", data, "--to", url); got.code != 0 || !strings.Contains(got.stderr, "already") {
		t.Errorf("once more: %+v", got)
	}
	if _, err := worker.Start(await.Context(t, "a worker to start"), r.settings(), testLog(t)); err == nil || !strings.Contains(err.Error(), "were moved to") {
		t.Fatalf("weir starts where the jobs were: %v", err)
	}
	file := filepath.Join(r.dir, "weir.yaml")
	w, err := worker.Start(await.Context(t, "a worker to start"), externalSettingsWith(t, url, file, map[string]string{"WEIR_REPLICAS": "3"}), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	held := r.heldUp
	r = rigBeside(t, w, api)
	r.heldUp = held // from the first call on
	if again := send("k3", "k3-11"); !again.Duplicate || again.Seq != first["k3-11"].Seq || again.Stream != first["k3-11"].Stream {
		t.Errorf("a waiting job's id is forgotten: %+v, was %+v", again, first["k3-11"])
	}
	if again := send("k1", "k1-0"); !again.Duplicate {
		t.Errorf("a finished job's id is forgotten: %+v", again)
	}
	r.eventually("49 results", func() bool { return r.messages("WEIR_RESULTS") == 49 })
	r.eventually("two letters", func() bool { return r.messages("WEIR_DEAD") == 2 })
	r.judgeMove(before)
	letter := r.submit("weir.jobs.nowhere.k", nil, nil)
	if letter.Letter != 3 {
		t.Errorf("the next letter is %d, want 3", letter.Letter)
	}
	for _, name := range []string{"WEIR_pay_0", "WEIR_DEAD", "WEIR_CALLS", "KV_weir_config"} {
		s, err := r.js.Stream(t.Context(), name)
		if err != nil || s.CachedInfo().Config.Replicas != 3 || len(s.CachedInfo().Cluster.Replicas) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := r.js.Consumer(t.Context(), "WEIR_RESULTS", "billing")
	if err != nil || c.CachedInfo().NumPending == 0 {
		t.Errorf("somebody's own consumer was not moved: %v", err)
	}
	if got := command(t, []string{"WEIR_NATS_URL=" + url}, "verify"); got.code != 0 {
		t.Errorf("weir verify: %+v", got)
	}
}

// judgeMove holds the calls that the api saw before and after a move against what was promised.
func (r *rig) judgeMove(before int) {
	r.t.Helper()
	calls, order := map[string]int{}, map[string][]string{}
	for _, a := range r.api.All() {
		id := string(a.Body)
		calls[id]++
		order[a.Key] = append(order[a.Key], id)
	}
	for n := range 12 {
		for k := range 4 {
			key, id := fmt.Sprint("k", k), fmt.Sprintf("k%d-%d", k, n)
			if calls[id] != 1 {
				r.t.Errorf("%s was called %d times", id, calls[id])
			}
			if n < len(order[key]) && order[key][n] != id {
				r.t.Errorf("call %d of %s is %s", n, key, order[key][n])
			}
		}
	}
	if calls["again-0"] != 2 || calls["bad-0"] != 1 || calls["one too many"] != 0 {
		r.t.Errorf("the others were called %d, %d and %d times", calls["again-0"], calls["bad-0"], calls["one too many"])
	}
	for _, key := range []string{"k0", "k1", "k2", "k3"} {
		second := max(time.Second-r.referee().eps(), 1) // of stamps that are all off by more nothing is known
		if most := fakeapi.FullestByCount(fakeapi.OfKey(r.api.All(), key), second); most.Count > 4 {
			r.t.Errorf("%d calls of %s within %s, 4 may", most.Count, key, second)
		}
	}
	r.t.Logf("%d calls before the move, %d in all", before, len(r.api.All()))
}

// filledSource is a stopped weir's data with some thousand jobs that wait.
func filledSource(t *testing.T) (r *rig, data string) {
	t.Helper()
	r = newRig(t, fakeapi.Options{}, "apis:\n  slow:\n    url: %s\n    idempotency: {header: Idempotency-Key}\n    bucket: {rate: 1/h, capacity: 5000}\n")
	body := []byte(strings.Repeat("incompressible? hardly. ", 40))
	inbox := nats.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 4000
	for n := range jobs {
		if err := r.nc.PublishRequest(fmt.Sprintf("weir.jobs.slow.k%d", n%40), inbox, append(body, fmt.Sprint(n)...)); err != nil {
			t.Fatal(err)
		}
	}
	for range jobs {
		if _, err := answers.NextMsg(patience); err != nil {
			t.Fatal(err)
		}
	}
	r.awaitCalls(40)
	r.eventually("40 results", func() bool { return r.messages("WEIR_RESULTS") == 40 })
	r.stop()
	return r, filepath.Join(r.dir, "data")
}

// TestMoveKilledHalfWay kills a move after each of its steps, and in between: weir starts at neither end meanwhile, and the
// next try goes on. In the end everything is there once.
func TestMoveKilledHalfWay(t *testing.T) {
	t.Parallel()
	r, data := filledSource(t)
	url, file := startTarget(t), filepath.Join(r.dir, "weir.yaml")
	external := externalSettingsWith(t, url, file, nil)
	killed := 0
	for lines := 0; ; lines++ {
		ended := killedMove(t, data, url, lines)
		if ended {
			break
		}
		killed++
		if _, err := worker.Start(await.Context(t, "a worker to start"), r.settings(), testLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
			t.Fatalf("weir starts at the source after %d lines: %v", lines, err)
		}
		if w, err := worker.Start(await.Context(t, "a worker to start"), external, testLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
			if err == nil {
				w.Stop()
				_ = await.Result(t, "the end of the worker", w.Wait)
			}
			t.Fatalf("weir starts at the target after %d lines: %v", lines, err)
		}
	}
	if killed < 5 {
		t.Errorf("the move was killed only %d times", killed)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]int{}
	for p := range 4 {
		s, err := js.Stream(t.Context(), fmt.Sprint("WEIR_slow_", p))
		if err != nil {
			t.Fatal(err)
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
			if m, err := s.GetMsg(t.Context(), seq); err == nil && strings.Contains(m.Subject, ".j.") {
				bodies[string(m.Data)]++
			}
		}
	}
	if len(bodies) != 4000-40 {
		t.Errorf("%d jobs wait at the target, want 3960", len(bodies))
	}
	for body, n := range bodies {
		if n != 1 {
			t.Errorf("%d times: …%s", n, body[len(body)-8:])
		}
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), external, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	if n := len(r.api.All()); n != 40 {
		t.Errorf("the api saw %d calls: a key whose hour was not over was called again", n)
	}
}

// killedMove runs a move and kills it after it said so many lines. It reports whether it ended by itself before.
func killedMove(t *testing.T, data, url string, lines int) (ended bool) {
	t.Helper()
	ctx := await.Context(t, "weir move")
	cmd := exec.CommandContext(ctx, os.Args[0], "move", "--from", data, "--to", url)
	cmd.Env = append(environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_REPLICAS=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scan, step, text := bufio.NewScanner(stderr), regexp.MustCompile(`^weir: \d+ of \d+`), ""
	for said := 0; scan.Scan(); {
		text += scan.Text() + "\n"
		if step.MatchString(scan.Text()) {
			if said++; said > lines {
				_ = cmd.Process.Kill()
			}
		}
	}
	err = await.Result(t, "the end of the move", cmd.Wait)
	if ctx.Err() != nil {
		t.Fatalf("%v, which said:\n%s", context.Cause(ctx), text)
	}
	if cmd.ProcessState.Success() {
		return true
	}
	if cmd.ProcessState.Exited() {
		t.Fatalf("the move ended with %v:\n%s", err, text)
	}
	return false
}
