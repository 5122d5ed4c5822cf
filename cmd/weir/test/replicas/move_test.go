package replicas

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/worker"
	"weir/cmd/weir/weirtest"
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
		routes = append(routes, "nats://"+weirtest.FreePort(t))
	}
	for i := range 3 {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), JetStream: true}
		opts.Cluster.Name = "c"
		servers = append(servers, weirtest.StartNATS(t, weirtest.Clustered(opts, routes, i, t.TempDir())))
	}
	weirtest.AwaitCluster(t, servers)
	return servers
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
	api := weirtest.StartOrdered(t, map[string][]string{"again": {"status=500"}, "bad": {"status=400"}})
	r := &weirtest.Rig{T: t, API: api, Dir: t.TempDir(), YAML: fmt.Sprintf(moveYAML, api.URL())}
	r.Start()
	t.Cleanup(r.Stop)
	send := func(key, id string) weirtest.Answer {
		return r.Submit("weir.jobs.pay."+key, []byte(id), map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + key})
	}
	first := map[string]weirtest.Answer{}
	r.PutPause("")
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
	if _, err := r.JS.CreateConsumer(t.Context(), "WEIR_RESULTS", consumer); err != nil {
		t.Fatal(err)
	}
	if err := r.Control().Delete(t.Context(), control.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.AwaitCalls(10)
	r.Stop()
	before := len(api.All())
	if before >= 50 {
		t.Fatal("nothing waits any more: the test is too slow for its rates")
	}

	servers := startCluster(t)
	url := servers[0].ClientURL()
	data := filepath.Join(r.Dir, "data")
	got := weirtest.Command(t, nil, "move", "--from", data, "--to", url)
	if got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	t.Log(got.Stderr + got.Stdout)
	if got := weirtest.Command(t, nil, "move", "--from", data, "--to", url); got.Code != 0 || !strings.Contains(got.Stderr, "already") {
		t.Errorf("once more: %+v", got)
	}
	if _, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "were moved to") {
		t.Fatalf("weir starts where the jobs were: %v", err)
	}
	file := filepath.Join(r.Dir, "weir.yaml")
	w, err := worker.Start(await.Context(t, "a worker to start"), weirtest.ExternalSettingsWith(t, url, file, map[string]string{"WEIR_REPLICAS": "3"}), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	held := r.HeldUp
	r = weirtest.RigBeside(t, w, api)
	r.HeldUp = held // from the first call on
	if again := send("k3", "k3-11"); !again.Duplicate || again.Seq != first["k3-11"].Seq || again.Stream != first["k3-11"].Stream {
		t.Errorf("a waiting job's id is forgotten: %+v, was %+v", again, first["k3-11"])
	}
	if again := send("k1", "k1-0"); !again.Duplicate {
		t.Errorf("a finished job's id is forgotten: %+v", again)
	}
	r.Eventually("49 results", func() bool { return r.Messages("WEIR_RESULTS") == 49 })
	r.Eventually("two letters", func() bool { return r.Messages("WEIR_DEAD") == 2 })
	r.JudgeMove(before)
	letter := r.Submit("weir.jobs.nowhere.k", nil, nil)
	if letter.Letter != 3 {
		t.Errorf("the next letter is %d, want 3", letter.Letter)
	}
	for _, name := range []string{"WEIR_pay_0", "WEIR_DEAD", "WEIR_CALLS", "KV_weir_config"} {
		s, err := r.JS.Stream(t.Context(), name)
		if err != nil || s.CachedInfo().Config.Replicas != 3 || len(s.CachedInfo().Cluster.Replicas) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := r.JS.Consumer(t.Context(), "WEIR_RESULTS", "billing")
	if err != nil || c.CachedInfo().NumPending == 0 {
		t.Errorf("somebody's own consumer was not moved: %v", err)
	}
	if got := weirtest.Command(t, []string{"WEIR_NATS_URL=" + url}, "verify"); got.Code != 0 {
		t.Errorf("weir verify: %+v", got)
	}
}

// filledSource is a stopped weir's data with some thousand jobs that wait.
func filledSource(t *testing.T) (r *weirtest.Rig, data string) {
	t.Helper()
	r = weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  slow:\n    url: %s\n    idempotency: {header: Idempotency-Key}\n    bucket: {rate: 1/h, capacity: 5000}\n")
	body := []byte(strings.Repeat("incompressible? hardly. ", 40))
	inbox := nats.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 4000
	for n := range jobs {
		if err := r.NC.PublishRequest(fmt.Sprintf("weir.jobs.slow.k%d", n%40), inbox, append(body, fmt.Sprint(n)...)); err != nil {
			t.Fatal(err)
		}
	}
	for range jobs {
		if _, err := answers.NextMsg(weirtest.Patience); err != nil {
			t.Fatal(err)
		}
	}
	r.AwaitCalls(40)
	r.Eventually("40 results", func() bool { return r.Messages("WEIR_RESULTS") == 40 })
	r.Stop()
	return r, filepath.Join(r.Dir, "data")
}

// TestMoveKilledHalfWay kills a move after each of its steps, and in between: weir starts at neither end meanwhile, and the
// next try goes on. In the end everything is there once.
func TestMoveKilledHalfWay(t *testing.T) {
	t.Parallel()
	r, data := filledSource(t)
	url, file := weirtest.StartTarget(t), filepath.Join(r.Dir, "weir.yaml")
	external := weirtest.ExternalSettingsWith(t, url, file, nil)
	killed := 0
	for lines := 0; ; lines++ {
		ended := killedMove(t, data, url, lines)
		if ended {
			break
		}
		killed++
		if _, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
			t.Fatalf("weir starts at the source after %d lines: %v", lines, err)
		}
		if w, err := worker.Start(await.Context(t, "a worker to start"), external, weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
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
	w, err := worker.Start(await.Context(t, "a worker to start"), external, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	if n := len(r.API.All()); n != 40 {
		t.Errorf("the api saw %d calls: a key whose hour was not over was called again", n)
	}
}

// killedMove runs a move and kills it after it said so many lines. It reports whether it ended by itself before.
func killedMove(t *testing.T, data, url string, lines int) (ended bool) {
	t.Helper()
	ctx := await.Context(t, "weir move")
	cmd := exec.CommandContext(ctx, os.Args[0], "move", "--from", data, "--to", url)
	cmd.Env = append(weirtest.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_REPLICAS=1")
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
