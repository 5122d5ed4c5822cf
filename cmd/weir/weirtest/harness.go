package weirtest

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
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/worker"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Rig is a whole weir with a fake paid api, in this process, on ports of its own.
type Rig struct {
	T     *testing.T
	API   *fakeapi.API
	Dir   string
	YAML  string
	Redis config.Secret // unset: the process counts limits itself
	// Secrets are what a configuration from NATS may refer to, besides the references in the rig's own file.
	Secrets []string
	Site    string // the site of the next worker, empty for none
	HeldUp  *machine.HeldUp
	Said    *Book        // receives the log of the next worker; nil: the test's log
	Clock   *clock.Clock // of the next worker; nil: the machine's
	Worker  *worker.Worker
	NC      *nats.Conn          // without credentials, as a producer connects
	JS      jetstream.JetStream // over NC
	// as is JetStream with the operators' credentials, on a connection to the server of asOf.
	as   jetstream.JetStream
	asOf *nats.Conn
}

// Operators returns JetStream with the operators' credentials, or without any if the server needs none.
func (r *Rig) Operators() jetstream.JetStream {
	r.T.Helper()
	if r.asOf != r.NC {
		r.as, r.asOf = OperatorsAt(r.T, r.NC), r.NC
	}
	return r.as
}

// OperatorsAt connects to the server of nc with the operators' credentials, which the embedded server keeps in its data
// directory. If the server does not authenticate, it connects without credentials.
func OperatorsAt(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	opts := []nats.Option{nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
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

// NewRig starts a fake api and a worker. %s in yaml is replaced with the api's url.
func NewRig(t *testing.T, o fakeapi.Options, yaml string) *Rig {
	t.Helper()
	r := ReadyRig(t, o, yaml)
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// ReadyRig starts the fake api and prepares a rig without a worker.
func ReadyRig(t *testing.T, o fakeapi.Options, yaml string) *Rig {
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
	return &Rig{T: t, API: api, Dir: t.TempDir(), YAML: fmt.Sprintf(yaml, api.URL())}
}

// Settings returns the settings of the rig's worker. It writes the configuration file.
func (r *Rig) Settings() *config.Settings {
	r.T.Helper()
	file := filepath.Join(r.Dir, "weir.yaml")
	WriteFile(r.T, file, r.YAML)
	return &config.Settings{
		Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(r.Dir, "data"), Durability: config.DurabilityAlways,
		Replicas: 1, Partitions: 4, Roles: []config.Role{config.RoleDispatch, config.RoleIngest}, Instance: "test",
		HTTPListen: "127.0.0.1:0", ShutdownTimeout: 10 * time.Second, RedisURL: r.Redis, Secrets: r.Secrets, StateDir: filepath.Join(r.Dir, "state"),
		Site: r.Site,
	}
}

func (r *Rig) Start() {
	r.T.Helper()
	if r.HeldUp == nil {
		r.HeldUp = MeasureHeldUp(r.T)
	}
	c := r.Clock
	if c == nil {
		c = clock.New()
	}
	var err error
	r.whenUnused(func() error {
		r.Worker, err = worker.StartAt(await.Context(r.T, "a worker to start"), r.Settings(), r.log(), c)
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	if r.NC, err = nats.Connect(r.Worker.NATSURL(), nats.Timeout(await.Patience)); err != nil {
		r.T.Fatal(err)
	}
	if r.JS, err = jetstream.New(r.NC); err != nil {
		r.T.Fatal(err)
	}
}

// whenUnused calls do, which needs the data directory of a worker that has ended. It retries, because a child that
// another test forks at this moment holds the worker's lock until the child executes its program.
func (r *Rig) whenUnused(do func() error) {
	r.T.Helper()
	r.Eventually("a data directory that nothing uses", func() bool {
		err := do()
		return err == nil || !strings.Contains(err.Error(), "another weir uses the data directory")
	})
}

// log returns the logger for the next worker.
func (r *Rig) log() *slog.Logger {
	if r.Said != nil {
		return slog.New(slog.NewTextHandler(r.Said, nil))
	}
	return TestLog(r.T)
}

func (r *Rig) Stop() {
	if r.Worker == nil {
		return
	}
	r.NC.Close()
	r.Worker.Stop()
	if err := await.Result(r.T, "the end of the worker", r.Worker.Wait); err != nil {
		r.T.Errorf("the worker stopped with: %v", err)
	}
	r.Worker = nil
}

// Repository is the path from a test's directory to the root of the repository.
var Repository = filepath.Join("..", "..", "..", "..")

// Roomy is the bound of the store, in bytes, in tests that are not about room. With this bound the server does not
// compare the bounds of streams with the free space of a small disk.
const Roomy = 100 << 30

// Patience is how long a test waits for an event before it fails. It allows for a busy machine.
const Patience = await.Patience

// AwaitCalls waits until the api has answered n calls. weir may not have stored the results and records of the last
// calls yet, so a test that reads these must wait for them too.
func (r *Rig) AwaitCalls(n int) []fakeapi.Arrival {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(n) })
	if err != nil {
		r.T.Fatalf("waited for %d calls, saw %d: %v", n, len(r.API.All()), err)
	}
	return r.API.All()
}

// Eventually polls until ok returns true. Use it for events without a channel.
func (r *Rig) Eventually(what string, ok func() bool) {
	r.T.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			r.T.Fatalf("waited %s in vain for: %s; %s", Patience, what, r.seen())
		}
	}
}

// seen describes the rig's state after a wait that timed out: the api's calls and the contents of the streams.
func (r *Rig) seen() string {
	var text strings.Builder
	if r.API != nil {
		sum := r.API.Totals()
		fmt.Fprintf(&text, "%d calls arrived, %d have ended", sum.Arrivals, sum.Ended)
	}
	if r.JS == nil {
		return text.String()
	}
	ctx, cancel := context.WithTimeout(r.T.Context(), 10*time.Second)
	defer cancel()
	streams := r.JS.ListStreams(ctx)
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

// Control returns the key-value bucket weir_control, which has the pauses.
func (r *Rig) Control() jetstream.KeyValue {
	r.T.Helper()
	kv, err := r.Operators().KeyValue(r.T.Context(), connect.ControlBucket)
	if err != nil {
		r.T.Fatal(err)
	}
	return kv
}

// Messages returns how many messages a stream holds.
func (r *Rig) Messages(stream string) int {
	r.T.Helper()
	s, err := r.JS.Stream(r.T.Context(), stream)
	if err != nil {
		r.T.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// Waiting returns how many jobs an api's queue holds.
func (r *Rig) Waiting(api string) int {
	r.T.Helper()
	n := 0
	for p := range 4 {
		s, err := r.JS.Stream(r.T.Context(), fmt.Sprintf("WEIR_%s_%d", api, p))
		if err != nil {
			r.T.Fatal(err)
		}
		info, err := s.Info(r.T.Context(), jetstream.WithSubjectFilter("weir.o.>"))
		if err != nil {
			r.T.Fatal(err)
		}
		n += int(info.State.Msgs) // both counts come from one answer: a new owner's mark is in both or in neither
		for _, m := range info.State.Subjects {
			n -= int(m)
		}
	}
	return n
}

func TestLog(t *testing.T) *slog.Logger {
	w := io.Discard
	// Without -v the log is discarded, for programs that read the tests' output.
	if flag.Lookup("test.v").Value.String() == "true" {
		w = t.Output()
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Submit sends one job and returns the answer, parsed.
func (r *Rig) Submit(subject string, body []byte, header map[string]string) Answer {
	r.T.Helper()
	msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	for name, value := range header {
		msg.Header[name] = []string{value}
	}
	nc := r.NC
	if strings.HasPrefix(subject, ingest.RedrivePrefix) {
		nc = r.Operators().Conn()
	}
	reply, err := nc.RequestMsg(msg, Patience)
	if err != nil {
		r.T.Fatal(err)
	}
	var a Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		r.T.Fatalf("%s: %v", reply.Data, err)
	}
	return a
}

// Answer is the answer that a producer gets.
type Answer struct {
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
