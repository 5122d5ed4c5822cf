package weirtest

import (
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
