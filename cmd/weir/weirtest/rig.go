package weirtest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/cmd/weir/weirtest/web"
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
	Redis secret.Value // unset: the process counts limits itself
	// Secrets are what a configuration from NATS may refer to, besides the references in the rig's own file.
	Secrets []string
	Site    string // the site of the next worker, empty for none
	HeldUp  *machine.HeldUp
	Said    *program.Book // receives the log of the next worker; nil: the test's log
	Clock   *clock.Clock  // of the next worker; nil: the machine's
	Worker  *worker.Worker
	NC      *nats.Conn          // without credentials, as a producer connects
	JS      jetstream.JetStream // over NC
	// as is JetStream with the operators' credentials, on a connection to the server of asOf.
	as   jetstream.JetStream
	asOf *nats.Conn
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

// RigOn starts a worker with this configuration for a running api.
func RigOn(t *testing.T, api *fakeapi.API, yaml string) *Rig {
	t.Helper()
	r := &Rig{T: t, API: api, Dir: t.TempDir(), YAML: yaml}
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// RigBeside returns a rig for a worker that the test has started itself.
func RigBeside(t *testing.T, w *worker.Worker, api *fakeapi.API) *Rig {
	t.Helper()
	r := &Rig{T: t, API: api, Worker: w}
	t.Cleanup(r.Stop)
	var err error
	if r.NC, err = nats.Connect(w.NATSURL(), nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	return r
}

// Settings returns the settings of the rig's worker. It writes the configuration file.
func (r *Rig) Settings() *environment.Settings {
	r.T.Helper()
	file := filepath.Join(r.Dir, "weir.yaml")
	WriteFile(r.T, file, r.YAML)
	return &environment.Settings{
		Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(r.Dir, "data"), Durability: environment.DurabilityAlways,
		Replicas: 1, Partitions: 4, Roles: []environment.Role{environment.RoleDispatch, environment.RoleIngest}, Instance: "test",
		HTTPListen: "127.0.0.1:0", ShutdownTimeout: 10 * time.Second, RedisURL: r.Redis, Secrets: r.Secrets, StateDir: filepath.Join(r.Dir, "state"),
		Site: r.Site,
	}
}

func (r *Rig) Start() {
	r.T.Helper()
	if r.HeldUp == nil {
		r.HeldUp = referee.MeasureHeldUp(r.T)
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

// AwaitEnd waits until the worker has ended.
func (r *Rig) AwaitEnd() {
	r.T.Helper()
	select {
	case <-r.Worker.Done():
	case <-time.After(Patience):
		r.T.Fatal("the worker does not end")
	}
}

// PurgeMemoryOfLetters restarts weir, so that the embedded server forgets the ids of deleted letters.
func (r *Rig) PurgeMemoryOfLetters() {
	r.T.Helper()
	r.Stop()
	r.Start()
}

// Operators returns JetStream with the operators' credentials, or without any if the server needs none.
func (r *Rig) Operators() jetstream.JetStream {
	r.T.Helper()
	if r.asOf != r.NC {
		r.as, r.asOf = servers.OperatorsAt(r.T, r.NC), r.NC
	}
	return r.as
}

// Store returns the reader of what the rig's weir keeps in NATS.
func (r *Rig) Store() store.Store {
	return store.Store{T: r.T, JS: r.JS, API: r.API, Operators: r.Operators}
}

// Disk returns the data directory of the rig's worker.
func (r *Rig) Disk() store.Disk { return store.Disk{T: r.T, Dir: filepath.Join(r.Dir, "data")} }

// Producer returns a producer that submits over the rig's connection.
func (r *Rig) Producer() producer.Producer {
	return producer.Producer{T: r.T, NC: r.NC, Operators: r.Operators}
}

// CLI returns the commands of weir, against the rig's server.
func (r *Rig) CLI() program.CLI { return program.CLI{T: r.T, NATS: r.Worker.NATSURL()} }

// HTTP returns a client of the worker's HTTP server.
func (r *Rig) HTTP() web.Client { return web.Client{T: r.T, Addr: r.Worker.HTTPAddr()} }

// Referee returns the judge of the calls to the rig's api.
func (r *Rig) Referee() referee.Referee {
	return referee.Referee{T: r.T, API: r.API, HeldUp: r.HeldUp}
}

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
	r.Store().Eventually(what, ok)
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

// Swept reports whether the worker has seen the deletion of all finished jobs.
func (r *Rig) Swept() bool {
	for _, q := range r.Worker.Parts().Queues {
		for _, p := range q.Partitions() {
			if p.Unswept() > 0 {
				return false
			}
		}
	}
	return true
}

// Gauge waits until a metric of the api pay has exactly this value.
func (r *Rig) Gauge(name string, want float64) {
	r.T.Helper()
	line := fmt.Sprintf("\n%s{api=\"pay\"} %v\n", name, want)
	r.Eventually("the metric"+line, func() bool { return strings.Contains(r.HTTP().Get("/metrics"), line) })
}

// Offline runs do with the store of the rig's worker, which must not run.
func (r *Rig) Offline(do func(o *store.Offline)) {
	r.T.Helper()
	var server *embedded.Server
	var err error
	r.whenUnused(func() error {
		server, err = embedded.Start(r.T.Context(), embedded.Options{MaxStore: servers.Roomy, Listen: "127.0.0.1:0", Dir: filepath.Join(r.Dir, "data"), SyncAlways: true, Log: TestLog(r.T)})
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		r.T.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		r.T.Fatal(err)
	}
	do(store.NewOffline(r.T, js, r.API.URL()))
}
