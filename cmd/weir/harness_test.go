package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/clock"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/worker"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rig is a whole weir with its paid api, in this process, on ports of their own.
type rig struct {
	t     *testing.T
	api   *fakeapi.API
	dir   string
	yaml  string
	redis config.Secret // its address; unset: limits are counted in the process
	// secrets are what a configuration out of NATS may refer to, beside the rig's own file.
	secrets []string
	heldUp  *machine.HeldUp
	said    *book        // what the worker to start logs; nil: nobody reads it
	clock   *clock.Clock // of the worker to start; nil: the machine's
	worker  *worker.Worker
	nc      *nats.Conn          // without credentials, as a producer connects
	js      jetstream.JetStream // the same
	// as is JetStream with the operators' credentials, at the server of asOf.
	as   jetstream.JetStream
	asOf *nats.Conn
}

// operators are JetStream with the operators' credentials, where the server tells producers from operators.
func (r *rig) operators() jetstream.JetStream {
	r.t.Helper()
	if r.asOf != r.nc {
		r.as, r.asOf = operatorsAt(r.t, r.nc), r.nc
	}
	return r.as
}

// operatorsAt connects to the server of a producer with the credentials that it keeps for operators; to one that asks nobody without.
func operatorsAt(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	opts := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
	if inside := connect.AskInside(t.Context(), nc, &connect.Denials{}); inside.OperatorCreds != "" {
		option, err := nats.NkeyOptionFromSeed(inside.OperatorCreds)
		if err != nil {
			t.Fatal(err)
		}
		opts = append(opts, option)
	}
	operator, err := nats.Connect(nc.ConnectedUrl(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.Close)
	js, err := jetstream.New(operator)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// newRig starts a fake api and a worker. yaml gets the api's url for its %s.
func newRig(t *testing.T, o fakeapi.Options, yaml string) *rig {
	t.Helper()
	r := readyRig(t, o, yaml)
	r.start()
	t.Cleanup(r.stop)
	return r
}

// readyRig starts the fake api, and no worker yet.
func readyRig(t *testing.T, o fakeapi.Options, yaml string) *rig {
	t.Helper()
	if o.Key == (fakeapi.KeyFrom{}) {
		o.Key = fakeapi.KeyFrom{Header: "X-Key"}
	}
	api, err := fakeapi.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{t: t, api: api, dir: t.TempDir(), yaml: fmt.Sprintf(yaml, api.URL())}
}

// settings are the worker's.
func (r *rig) settings() *config.Settings {
	r.t.Helper()
	file := filepath.Join(r.dir, "weir.yaml")
	writeFile(r.t, file, r.yaml)
	return &config.Settings{
		Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(r.dir, "data"), Durability: config.DurabilityAlways,
		Replicas: 1, Partitions: 4, Roles: []config.Role{config.RoleDispatch, config.RoleIngest}, Instance: "test",
		HTTPListen: "127.0.0.1:0", ShutdownTimeout: 10 * time.Second, RedisURL: r.redis, Secrets: r.secrets, StateDir: filepath.Join(r.dir, "state"),
	}
}

func (r *rig) start() {
	r.t.Helper()
	if r.heldUp == nil {
		r.heldUp = measureHeldUp(r.t)
	}
	c := r.clock
	if c == nil {
		c = clock.New()
	}
	var err error
	if r.worker, err = worker.StartAt(await.Context(r.t, "a worker to start"), r.settings(), r.log(), c); err != nil {
		r.t.Fatal(err)
	}
	if r.nc, err = nats.Connect(r.worker.NATSURL()); err != nil {
		r.t.Fatal(err)
	}
	if r.js, err = jetstream.New(r.nc); err != nil {
		r.t.Fatal(err)
	}
}

// log is where the worker to start writes.
func (r *rig) log() *slog.Logger {
	if r.said != nil {
		return slog.New(slog.NewTextHandler(r.said, nil))
	}
	return testLog(r.t)
}

func (r *rig) stop() {
	if r.worker == nil {
		return
	}
	r.nc.Close()
	r.worker.Stop()
	if err := await.Result(r.t, "the end of the worker", r.worker.Wait); err != nil {
		r.t.Errorf("the worker stopped with: %v", err)
	}
	r.worker = nil
}

// repository is the way from a test's directory to the root of the repository.
var repository = filepath.Join("..", "..")

// roomy is the store's bound of servers that are not about room: what streams may ask for is held against it, not against what a small disk has left.
const roomy = 100 << 30

// patience is how long a test waits in vain: for a machine that is busy with other things too.
const patience = await.Patience

// awaitCalls waits until the api has answered n calls. weir has not recorded the last of them yet, perhaps: their results and their
// records in the ledger may still be missing. Who reads these waits for them too.
func (r *rig) awaitCalls(n int) []fakeapi.Arrival {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(n) })
	if err != nil {
		r.t.Fatalf("waited for %d calls, saw %d: %v", n, len(r.api.All()), err)
	}
	return r.api.All()
}

// eventually polls until ok, for what has no channel to wait on.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("waited %s in vain for: %s; %s", patience, what, r.seen())
		}
	}
}

// seen is what there is to see of a rig when a test has waited in vain: the api's calls, and what its streams hold.
func (r *rig) seen() string {
	var text strings.Builder
	if r.api != nil {
		sum := r.api.Totals()
		fmt.Fprintf(&text, "%d calls arrived, %d have ended", sum.Arrivals, sum.Ended)
	}
	if r.js == nil {
		return text.String()
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	streams := r.js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.State.Msgs > 0 {
			fmt.Fprintf(&text, "; %s holds %d", info.Config.Name, info.State.Msgs)
		}
	}
	if err := streams.Err(); err != nil {
		fmt.Fprintf(&text, "; the streams are not known: %v", err)
	}
	return text.String()
}

// control is where pauses are kept.
func (r *rig) control() jetstream.KeyValue {
	r.t.Helper()
	kv, err := r.operators().KeyValue(r.t.Context(), connect.ControlBucket)
	if err != nil {
		r.t.Fatal(err)
	}
	return kv
}

// messages is how many messages a stream holds.
func (r *rig) messages(stream string) int {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// waiting is how many jobs an api's queue holds.
func (r *rig) waiting(api string) int {
	r.t.Helper()
	n := 0
	for p := range 4 {
		s, err := r.js.Stream(r.t.Context(), fmt.Sprintf("WEIR_%s_%d", api, p))
		if err != nil {
			r.t.Fatal(err)
		}
		info, err := s.Info(r.t.Context(), jetstream.WithSubjectFilter("weir.o.>"))
		if err != nil {
			r.t.Fatal(err)
		}
		n += int(info.State.Msgs) // of the same answer: a new owner's mark must not be taken for a job that has gone
		for _, m := range info.State.Subjects {
			n -= int(m)
		}
	}
	return n
}

func testLog(t *testing.T) *slog.Logger {
	w := io.Discard
	if flag.Lookup("test.v").Value.String() == "true" { // not for a program that reads the tests' output
		w = t.Output()
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// submit sends one job and returns the answer, parsed.
func (r *rig) submit(subject string, body []byte, header map[string]string) answer {
	r.t.Helper()
	msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	for name, value := range header {
		msg.Header[name] = []string{value}
	}
	nc := r.nc
	if strings.HasPrefix(subject, ingest.RedrivePrefix) {
		nc = r.operators().Conn()
	}
	reply, err := nc.RequestMsg(msg, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		r.t.Fatalf("%s: %v", reply.Data, err)
	}
	return a
}

// answer is what a producer gets.
type answer struct {
	Stream    string
	Seq       uint64
	Job, Key  string
	Duplicate bool
	OverSoft  bool `json:"over_soft"`
	Position  int
	ETAms     *int64 `json:"eta_ms"`
	Letter    uint64 `json:"dead_letter_seq"`
	RetryMS   int64  `json:"retry_after_ms"`
	Error     *struct {
		Code        int
		ErrCode     int `json:"err_code"`
		Description string
	}
}
