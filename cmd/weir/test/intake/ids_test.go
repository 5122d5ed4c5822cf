package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// restarts is an external nats-server that can be restarted with its old store and address, and one api.
type restarts struct {
	*weirtest.Rig
	server    *embedded.Server
	url, file string
	// partitions of each replica to start; 0: the default
	partitions int
}

func newRestarts(t *testing.T, yaml string) *restarts {
	t.Helper()
	r := &restarts{Rig: weirtest.ReadyRig(t, fakeapi.Options{Headers: []string{"X-Job"}}, yaml)}
	r.startServer("127.0.0.1:0")
	t.Cleanup(func() { r.server.Shutdown() })
	r.url = r.server.ClientURL()
	r.file = filepath.Join(r.Dir, "weir.yaml")
	weirtest.WriteFile(t, r.file, r.YAML)
	var err error
	if r.NC, err = nats.Connect(r.url, nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.NC.Close)
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *restarts) startServer(listen string) {
	r.T.Helper()
	var err error
	if r.server, err = embedded.Start(r.T.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   listen, Dir: filepath.Join(r.Dir, "server"), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		r.T.Fatal(err)
	}
}

func (r *restarts) restartServer() { r.restartServerAfter(func(string) error { return nil }) }

// restartServerAfter does something to the server's store while it is down.
func (r *restarts) restartServerAfter(what func(store string) error) {
	r.T.Helper()
	r.server.Shutdown()
	if err := what(filepath.Join(r.Dir, "server")); err != nil {
		r.T.Fatal(err)
	}
	r.startServer(strings.TrimPrefix(r.url, "nats://"))
}

// replica starts a weir, and gives what stops it.
func (r *restarts) replica(name string, roles ...environment.Role) (stop func()) {
	r.T.Helper()
	s := program.ExternalSettings(r.T, r.url, r.file, name, roles...)
	if r.partitions > 0 {
		s.Partitions = r.partitions
	}
	w, err := worker.Start(await.Context(r.T, "a worker to start"), s, weirtest.TestLog(r.T))
	if err != nil {
		r.T.Fatal(err)
	}
	return func() {
		w.Stop()
		if err := await.Result(r.T, "the end of the worker", w.Wait); err != nil {
			r.T.Error(err)
		}
	}
}

// insist sends a job as a producer does that gets no receipt: until it has one.
func (r *restarts) insist(id string) producer.Answer {
	r.T.Helper()
	var a producer.Answer
	r.Eventually("a receipt for "+id, func() bool {
		msg := &nats.Msg{Subject: "weir.jobs.ext.k", Header: nats.Header{"Nats-Msg-Id": {id}, "Weir-Header-X-Job": {id}}}
		reply, err := r.NC.RequestMsg(msg, time.Second)
		return err == nil && json.Unmarshal(reply.Data, &a) == nil && a.Error == nil
	})
	return a
}

// callsOf is how often each job was called.
func (r *restarts) callsOf() map[string]int {
	calls := map[string]int{}
	for _, c := range r.API.All() {
		calls[c.Header("X-Job")]++
	}
	return calls
}

const restartsYAML = "apis:\n  ext:\n    url: %s\n    forward_headers: [X-Job]\n    bucket: {rate: 200/s, capacity: 100, in_flight: 1}\n"

// TestFinishedIDsOutliveTheServer: a server that restarts forgets the ids of jobs that have ended. A job that is sent
// again is not called again: not if its owner accepts it, not if an intake does that knows nothing of it, and not by
// the next owner.
func TestFinishedIDsOutliveTheServer(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, restartsYAML)
	stop := r.replica("first")
	first := r.insist("x")
	r.AwaitCalls(1)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(first.Stream) == 1 })
	r.restartServer()

	if a := r.insist("x"); !a.Duplicate || a.Seq != first.Seq {
		t.Errorf("the owner's intake took a job again that has ended: %+v", a)
	}
	r.storeTwin(first.Stream, "x")
	r.insist("y")
	r.AwaitCalls(2) // of one key, in order: the twin's would have come before
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(first.Stream) == 1 })

	stop()
	r.restartServer()
	r.Eventually("the server", func() bool { return r.NC.IsConnected() })
	r.storeTwin(first.Stream, "x")
	defer r.replica("second")()
	r.insist("z")
	r.AwaitCalls(3)
	if calls := r.callsOf(); calls["x"] != 1 || calls["y"] != 1 || calls["z"] != 1 {
		t.Errorf("jobs were called %v times, each once would be right", calls)
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(first.Stream) == 1 })
}

// TestIntakeLearnsOfFinishedJobs: an intake without a dispatcher answers where a job that has ended was, if the server
// does not know its id any more.
func TestIntakeLearnsOfFinishedJobs(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, restartsYAML)
	defer r.replica("intake", environment.RoleIngest)()
	defer r.replica("caller", environment.RoleDispatch)()
	first := r.insist("x")
	r.AwaitCalls(1)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(first.Stream) == 1 })
	r.restartServer()
	r.Eventually("a receipt that says where it was", func() bool { // the record may still have been on its way
		a := r.insist("x")
		return a.Duplicate && a.Seq == first.Seq
	})
	r.insist("y")
	r.AwaitCalls(2)
	if calls := r.callsOf(); calls["x"] != 1 || calls["y"] != 1 {
		t.Errorf("jobs were called %v times, each once would be right", calls)
	}
}

// storeTwin stores a job as an intake does that does not know of its end.
func (r *restarts) storeTwin(stream, id string) {
	r.T.Helper()
	ack, err := servers.OperatorsAt(r.T, r.NC).PublishMsg(r.T.Context(), r.copyOf(stream, id))
	if err != nil || ack.Duplicate {
		r.T.Fatalf("the stream was to take a second %s: %+v, %v", id, ack, err)
	}
}

// TestServerWithoutItsLastWrites: a server that comes back with an older state under a running weir gives the sequences
// of lost jobs to new ones. The new jobs are called, and no job that had ended is called again.
func TestServerWithoutItsLastWrites(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, restartsYAML)
	r.partitions = 1
	defer r.replica("first")()
	held := r.insist("early")
	r.AwaitCalls(1)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(held.Stream) == 1 })
	kept := filepath.Join(t.TempDir(), "kept")
	r.restartServerAfter(func(store string) error { return os.CopyFS(kept, os.DirFS(store)) })
	for n := range 20 {
		r.insist(fmt.Sprint("lost-", n))
	}
	r.AwaitCalls(21)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(held.Stream) == 1 })
	r.restartServerAfter(func(store string) error {
		return errors.Join(os.RemoveAll(store), os.CopyFS(store, os.DirFS(kept)))
	})
	for n := range 5 {
		r.insist(fmt.Sprint("new-", n))
	}
	r.insist("early")
	r.insist("lost-3")
	r.AwaitCalls(26)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(held.Stream) == 1 })
	for job, n := range r.callsOf() {
		if n != 1 {
			t.Errorf("%s was called %d times", job, n)
		}
	}
}
