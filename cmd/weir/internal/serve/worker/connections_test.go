package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestPostsLeaveConnections checks that posts of jobs leave half of the connections to probes and operators.
func TestPostsLeaveConnections(t *testing.T) {
	for connections, want := range map[int]int{2: 1, 8: 4, 256: 128, 16 << 10: mostPosts} {
		if got := posts(connections); got != want {
			t.Errorf("of %d connections %d may post", connections, got)
		}
	}
}

// TestAClosedConnectionEndsTheWorker checks that the worker is no longer alive and ends with an error if the server
// ends any of its connections for good, by a control line over its bound.
func TestAClosedConnectionEndsTheWorker(t *testing.T) {
	for name, of := range map[string]func(w *Worker) *nats.Conn{
		"the connection of this replica": func(w *Worker) *nats.Conn { return w.nc },
		"the producers' gate":            func(w *Worker) *nats.Conn { return w.server.Gate() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "weir.yaml")
			writeText(t, file, "apis: {}\n")
			w, err := Start(await.Context(t, "a worker to start"), &environment.Settings{
				Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(dir, "data"), StateDir: filepath.Join(dir, "state"), Durability: environment.DurabilityInterval,
				Replicas: 1, Partitions: 1, Roles: []environment.Role{environment.RoleDispatch, environment.RoleIngest}, Instance: "test", HTTPListen: "127.0.0.1:0",
				ShutdownTimeout: 5 * time.Second,
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			alive := func() string {
				res, err := http.Get("http://" + w.http.Addr() + "/livez")
				if err != nil {
					return err.Error() // the worker no longer listens
				}
				defer func() { _ = res.Body.Close() }()
				body, _ := io.ReadAll(res.Body)
				return res.Status + " " + string(body)
			}
			if err, said := w.Alive(), alive(); err != nil || !strings.HasPrefix(said, "200") {
				t.Fatalf("before: %v, %s", err, said)
			}
			if err := of(w).Publish(strings.Repeat("x", 5000), nil); err != nil {
				t.Fatal(err)
			}
			await.Return(t, "the worker to end", func() { err = w.Wait() })
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "maximum control line") {
				t.Errorf("the worker ended with %v", err)
			}
			if err, said := w.Alive(), alive(); err == nil || strings.HasPrefix(said, "200") {
				t.Errorf("afterwards: %v, %s", err, said)
			}
		})
	}
}

// TestAConnectionClosedInOrderEndsNothing checks that a connection that the worker closes itself does not end it, and
// that keepOpen notices a connection that had ended before.
func TestAConnectionClosedInOrderEndsNothing(t *testing.T) {
	connect := func() *nats.Conn {
		nc, err := nats.Connect(natstest.JetStream(t).Conn().ConnectedUrl(), nats.Timeout(await.Patience))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	l := newLifetime(t.Context(), time.Second, slog.New(slog.DiscardHandler))
	if err := l.keepOpen(connect(), "a connection")(); err != nil {
		t.Fatal(err)
	}
	if err := l.wait(); err != nil || l.Alive() != nil {
		t.Errorf("%v, %v", err, l.Alive())
	}
	gone := connect()
	gone.Close()
	l = newLifetime(context.Background(), time.Second, slog.New(slog.DiscardHandler))
	l.keepOpen(gone, "a connection")
	var err error
	await.Return(t, "the part to fail", func() { err = <-l.failed })
	if err == nil || l.Alive() == nil || !errors.Is(l.wait(), err) {
		t.Errorf("of one that had ended: %v, %v", err, l.Alive())
	}
}
