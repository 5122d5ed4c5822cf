package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/streamwatch"
	"weir/dispatcher"
	"weir/ingest/await"
)

// TestMissingSecretNamesFileAndLine checks that serve reports a missing secret in the same words as config check.
func TestMissingSecretNamesFileAndLine(t *testing.T) {
	c, err := config.Parse([]byte("apis:\n  a:\n    url: https://a.example.com\n    headers: {X: \"${env:NO_SUCH_SECRET_HERE}\"}\n    bucket: {rate: 1/s, capacity: 1}\n"),
		config.Options{Name: "deploy/my.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "deploy/my.yaml:4: apis.a.headers.X: environment variable NO_SUCH_SECRET_HERE is not set: provide it where weir serve runs"
	if err := refuseUnsupported(c, nil); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// heldStore is a store that reports new rules to the test, and adopts them when the test allows it.
type heldStore struct {
	*bucket.Memory
	adopting chan bucket.Rate
	free     chan struct{}
}

func (s heldStore) Apply(rules bucket.Rules) error {
	s.adopting <- rules.Key.Rate
	select {
	case <-s.free:
	case <-time.After(await.Patience):
		return errors.New("the test does not go on")
	}
	return s.Memory.Apply(rules)
}

// openedHost is the host of a follower whose versions add no api.
type openedHost struct{ apiHost }

func (openedHost) ensureStreams(context.Context, *config.Config, *config.Config) error { return nil }

func (openedHost) beginCallbacks(context.Context, *config.Config, uint64) error { return nil }

func (openedHost) openAccounts(context.Context, *config.Config) error { return nil }

func (openedHost) runAccounts() {}

func (openedHost) confirm(*config.Config) {}

func (openedHost) queueSettings(a *config.API, c *config.Config) queue.Settings {
	return queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: c.Dedupe}, API: a.Name, Partitions: 1, Capacity: 100, MaxBody: a.MaxBody,
	}
}

// TestRollbackOfHalfAVersion checks a version that changed some apis before it failed: taking it back restores all of
// them, even one that adopts it late.
func TestRollbackOfHalfAVersion(t *testing.T) {
	const before, tried = "1/s", "2/s"
	ctx := await.Context(t, "the rollback")
	js := natstest.JetStream(t)
	home, err := admin.EnsureConfigStore(ctx, js, 1)
	if err != nil {
		t.Fatal(err)
	}
	put := func(rate string) *admin.Version {
		t.Helper()
		text := "apis:\n"
		for _, api := range []string{"a", "b"} {
			text += strings.ReplaceAll(strings.TrimPrefix(textAt(rate), "apis:\n"), "pay", api)
		}
		_, last, err := home.Newest(ctx)
		if err == nil {
			_, err = home.Put(ctx, admin.StoredConfig{YAML: text, From: "test", Who: "test"}, last)
		}
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := home.Newest(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	present := put(before)
	now := func() bucket.Micros { return bucket.MicrosOf(time.Now()) }
	dedupe, log := queue.NewDedupe(time.Hour), slog.New(slog.DiscardHandler)
	dispatch, err := dispatcher.Open(ctx, dispatcher.Options{
		Conn: js.Conn(), JetStream: js, Instance: "weir-0", Now: now, Replicas: 1, Dedupe: dedupe, ResultsAge: time.Hour, LedgerAge: time.Hour, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stores, opened := map[string]heldStore{}, []*apiParts(nil)
	for i := range present.Config.APIs {
		api := DispatchAPI(&present.Config.APIs[i], present.Config)
		q, err := queue.OpenQueue(ctx, queue.Options{
			Conn: js.Conn(), JetStream: js, Rules: api.Rules, Settings: openedHost{}.queueSettings(&present.Config.APIs[i], present.Config), Dedupe: dedupe,
		})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := bucket.NewMemory(api.Rules, now)
		if err != nil {
			t.Fatal(err)
		}
		stores[api.Name] = heldStore{memory, make(chan bucket.Rate, 8), make(chan struct{})}
		opened = append(opened, &apiParts{name: api.Name, queue: q})
		dispatch.AddAPI(dispatcher.APIOptions{
			API: api, Queue: q, Store: stores[api.Name], Checkpoint: func() {}, TAT: func(string) bucket.Micros { return 0 },
		})
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- dispatch.Run(running, running) }()
	f := newFollower(followerOptions{
		nc: js.Conn(), js: js, store: home, host: openedHost{}, dispatch: dispatch, dedupe: dedupe, guard: newDiskGuard(js, 0, true, 1, log), log: log,
	}, nil, opened, present)
	follow := func(ctx context.Context) <-chan error {
		entries, err := home.History(ctx)
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		go func() { taken <- f.take(ctx, entries[len(entries)-1]) }()
		return taken
	}
	adopts := func(api, rate string) {
		t.Helper()
		if got := grammar.FormatRate(await.Receive(t, "rules of "+api, stores[api].adopting)); got != rate {
			t.Errorf("%s adopts %s, want %s", api, got, rate)
		}
	}

	put(tried)
	hasty, cancel := context.WithCancel(ctx)
	taken := follow(hasty)
	adopts("a", tried)
	close(stores["a"].free)
	adopts("b", tried)
	cancel()
	if err := await.Receive(t, "the end of the try", taken); err == nil {
		t.Fatal("the version was put in force although it was given up")
	}
	close(stores["b"].free)
	back := put(before)
	taken = follow(ctx)
	adopts("a", before)
	adopts("b", before)
	if err := await.Receive(t, "the rollback", taken); err != nil || f.version.Load() != back.Number {
		t.Errorf("version %d is in force, want %d: %v", f.version.Load(), back.Number, err)
	}
	stop()
	if err := await.Receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// halfHost opens the first api of a configuration, and fails at the second one.
type halfHost struct {
	openedHost

	opened, dropped *apiParts
}

func (h *halfHost) openAPI(_ context.Context, a *config.API, _ *config.Config) (*apiParts, error) {
	if h.opened != nil {
		return nil, errors.New("the second api fails")
	}
	h.opened = &apiParts{name: a.Name}
	return h.opened, nil
}

func (h *halfHost) dropAPI(a *apiParts) { h.dropped = a }

// TestFailedVersionDropsItsAPIs checks that an api that was opened before another one failed is dropped, because the next
// try opens it again.
func TestFailedVersionDropsItsAPIs(t *testing.T) {
	text := "apis:\n"
	for _, api := range []string{"a", "b"} {
		text += strings.ReplaceAll(strings.TrimPrefix(textAt("1/s"), "apis:\n"), "pay", api)
	}
	c, err := config.Parse([]byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host := &halfHost{}
	f := &follower{followerOptions: followerOptions{host: host}}
	if err := f.apply(t.Context(), &admin.Version{Config: c}, nil); err == nil || host.opened == nil || host.dropped != host.opened {
		t.Errorf("dropped %v of %v: %v", host.dropped, host.opened, err)
	}
}

// TestReadinessLeavesOneKey checks that the writes by which replicas find out whether the store works leave one key, not
// one of each instance that ever ran.
func TestReadinessLeavesOneKey(t *testing.T) {
	js := natstest.JetStream(t)
	kv, err := admin.EnsureControl(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, instance := range []string{"one", "two"} {
		w := newWorker(&link{
			lifetime: newLifetime(t.Context(), time.Second, slog.New(slog.DiscardHandler)), settings: &environment.Settings{Instance: instance},
			control: kv, js: js,
		})
		w.streams, w.guard, w.foreign = &streamwatch.Watch{}, newDiskGuard(js, 0, false, 1, w.log), foreign.NewWatch(js, instance, newRegistry(), w.log)
		if err := w.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := kv.Keys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("keys %q: %v", keys, err)
	}
}
