package replicas

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// startCluster runs three nats-servers, and returns when they have a leader that knows them all.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	var cluster []*server.Server
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+servers.FreePort(t))
	}
	for i := range 3 {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), JetStream: true}
		opts.Cluster.Name = "c"
		cluster = append(cluster, servers.StartNATS(t, servers.Clustered(opts, routes, i, t.TempDir())))
	}
	servers.AwaitCluster(t, cluster)
	return cluster
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
	send := func(key, id string) producer.Answer {
		return r.Producer().Submit("weir.jobs.pay."+key, []byte(id), map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + key})
	}
	first := map[string]producer.Answer{}
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
	r.PutPause("k3") // its jobs wait for certain until they have been moved
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.AwaitCalls(10)
	r.Stop()
	before := len(api.All())
	if paused := len(api.Arrivals("k3")); paused > 0 {
		t.Errorf("%d calls of a key that is paused", paused)
	}

	servers := startCluster(t)
	url := servers[0].ClientURL()
	data := filepath.Join(r.Dir, "data")
	got := program.Command(t, nil, "move", "--from", data, "--to", url)
	if got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	t.Log(got.Stderr + got.Stdout)
	if got := program.Command(t, nil, "move", "--from", data, "--to", url); got.Code != 0 || !strings.Contains(got.Stderr, "already") {
		t.Errorf("once more: %+v", got)
	}
	if _, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "were moved to") {
		t.Fatalf("weir starts where the jobs were: %v", err)
	}
	file := filepath.Join(r.Dir, "weir.yaml")
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettingsWith(t, url, file, map[string]string{"WEIR_REPLICAS": "3"}), weirtest.TestLog(t))
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
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "k3")); err != nil {
		t.Fatal(err)
	}
	r.Eventually("49 results", func() bool { return r.Store().Messages("WEIR_RESULTS") == 49 })
	r.Eventually("two letters", func() bool { return r.Store().Messages("WEIR_DEAD") == 2 })
	r.Referee().JudgeMove(before)
	letter := r.Producer().Submit("weir.jobs.nowhere.k", nil, nil)
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
		t.Errorf("a user's own consumer was not moved: %v", err)
	}
	if got := program.Command(t, []string{"WEIR_NATS_URL=" + url}, "verify"); got.Code != 0 {
		t.Errorf("weir verify: %+v", got)
	}
}
