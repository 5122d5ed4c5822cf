package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/ingest/await"
)

// TestAccountOpensBesideTheStart checks that a configuration may add an account while the start still waits for the
// accounts that it has opened. The race detector reports if both use the same field.
func TestAccountOpensBesideTheStart(t *testing.T) {
	ctx := await.Context(t, "the account")
	js, log := natstest.JetStream(t), slog.New(slog.DiscardHandler)
	control, err := admin.EnsureControl(ctx, js, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := dispatcher.EnsureStreams(ctx, dispatcher.Options{JetStream: js, Replicas: 1, LedgerAge: time.Hour, Log: log}); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]byte("accounts:\n  acme:\n    limits: [{name: calls, rate: 1/s}]\n"+
		"apis:\n  a:\n    url: https://a.example.com\n    account: acme\n    bucket: {rate: 1/s, capacity: 1}\n"), config.Options{Name: "weir.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(&link{})
	w.dispatch = &dispatcher.Dispatcher{}
	w.limits = &limitstate.Options{
		Conn: js.Conn(), JetStream: js, Control: control, Caller: w.dispatch, Clock: clock.New(), Pools: &limitstate.Pools{}, Instance: "test", Log: log,
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		// With the same context, the context's lock would order the two goroutines.
		w.awaitAccounts(context.WithoutCancel(ctx), nil)
	}()
	if err := w.openAccounts(ctx, c); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the start", waited)
	if len(w.fresh) != 1 {
		t.Errorf("%d accounts are to be run, want 1", len(w.fresh))
	}
}
