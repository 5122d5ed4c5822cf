package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// newExternalRig starts a worker on a server of its own that the test may tamper with.
func newExternalRig(t *testing.T) *weirtest.Rig {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	r := &weirtest.Rig{T: t}
	if r.API, err = fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Header: "X-Key"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.API.Close() })
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  ext:\n    url: %s\n    bucket: {rate: 200/s, capacity: 100}\n", r.API.URL()))
	s := program.ExternalSettings(t, server.ClientURL(), file, "first")
	s.ShutdownTimeout = 2 * time.Second
	if r.Worker, err = worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t)); err != nil {
		t.Fatal(err)
	}
	if r.NC, err = nats.Connect(server.ClientURL(), nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.NC.Close)
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLostMembershipIsBegunAnew: a replica that the others have given up for dead lets go of what it owned, and takes part
// again.
func TestLostMembershipIsBegunAnew(t *testing.T) {
	t.Parallel()
	r := newExternalRig(t)
	kv, err := r.JS.KeyValue(t.Context(), connect.LeasesBucket)
	if err != nil {
		t.Fatal(err)
	}
	member := func() string {
		keys, err := kv.Keys(t.Context())
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) { // of one that changes the list may come back empty
			t.Fatal(err)
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "member.") {
				return key
			}
		}
		return ""
	}
	former := ""
	r.Eventually("a membership", func() bool { former = member(); return former != "" })
	if err := kv.Delete(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	r.Eventually("another membership", func() bool { now := member(); return now != "" && now != former })
	if _, err := r.JS.Publish(t.Context(), "weir.jobs.ext.k", nil); err != nil {
		t.Fatal(err)
	}
	r.AwaitCalls(1)
	r.Worker.Stop()
	r.AwaitEnd()
	if err := await.Result(t, "the end of the worker", r.Worker.Wait); err != nil {
		t.Error(err)
	}
}

// TestStopWithoutAStream: a deleted stream does not keep a worker from stopping.
func TestStopWithoutAStream(t *testing.T) {
	t.Parallel()
	r := newExternalRig(t)
	if err := r.JS.DeleteStream(t.Context(), "WEIR_ext_0"); err != nil {
		t.Fatal(err)
	}
	r.Worker.Stop()
	r.AwaitEnd()
}

// TestNoMoreIsPaidForWhatCannotBeKept: calls hold while results cannot be stored, and none of them is made twice.
func TestNoMoreIsPaidForWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	const jobs = 900
	r := newExternalRig(t)
	results, err := r.JS.Stream(t.Context(), "WEIR_RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	sealed := results.CachedInfo().Config // a stream that is deleted would be made again
	sealed.Sealed = true
	if _, err := r.JS.UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if _, err := r.JS.PublishAsync(fmt.Sprintf("weir.jobs.ext.k%d", i%30), nil); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the receipts", r.JS.PublishAsyncComplete())
	r.Eventually("a hold", func() bool { return r.HTTP().DispatchHeld() })
	if n := len(r.API.All()); n > jobs*4/5 {
		t.Errorf("%d of %d calls were paid for while not one outcome could be kept", n, jobs)
	}
	r.Worker.Stop()
	r.AwaitEnd()
}

// TestOnlyTheLeaderSaysGone: a message that is there is never taken for deleted, a deleted one is.
func TestOnlyTheLeaderSaysGone(t *testing.T) {
	t.Parallel()
	r := newExternalRig(t)
	s, err := r.JS.Stream(t.Context(), "WEIR_ext_0")
	if err != nil {
		t.Fatal(err)
	}
	there := s.CachedInfo().State.LastSeq // the owner's epoch
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: r.NC, JetStream: r.JS, Rules: bucket.Rules{}, Settings: queue.Settings{
			StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "ext", Partitions: 8, Capacity: 100, MaxBody: 1 << 10,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := q.Partitions()[0]
	if gone, err := p.Absence(t.Context(), there); err != nil || gone != queue.Present {
		t.Errorf("a message that is there: gone %v, %v", gone, err)
	}
	if gone, err := p.Absence(t.Context(), there+1000); err != nil || gone != queue.LostByStore {
		t.Errorf("a message that is not there: gone %v, %v", gone, err)
	}
	r.Worker.Stop()
	r.AwaitEnd()
}
