package replicas

import (
	"errors"
	"io"
	"testing"
	"time"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestClaimsOnACluster checks on three NATS nodes that a share is set only by the last claim, and only if nothing was
// written to the configuration since.
func TestClaimsOnACluster(t *testing.T) {
	t.Parallel()
	url, _ := servers.ThreeServers(t)
	c, err := connect.Open(connect.Address{URL: url, At: url, Name: "test", Timeout: await.Patience, Options: []nats.Option{nats.MaxReconnects(-1)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx := await.Context(t, "claims")
	store, err := admin.EnsureConfigStore(ctx, c.JetStream, 3)
	if err != nil {
		t.Fatal(err)
	}
	text := "accounts:\n  acme:\n    limits: [{rate: 100/s}]\n    shares: {eu: 60%, us: 40%}\napis:\n  a: {url: 'http://127.0.0.1:9', account: acme, bucket: {rate: 1/s, capacity: 5}}\n"
	if _, err := store.Put(ctx, admin.StoredConfig{YAML: text, At: time.Now(), Site: "eu", Shares: map[string]int64{"acme": 60}}, 0); err != nil {
		t.Fatal(err)
	}
	claim := func() *admin.Claimed {
		t.Helper()
		v, err := admin.ClaimShares(ctx, c, admin.Claim{Account: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	share := func() int64 {
		t.Helper()
		a, _ := claim().Config.Account("acme")
		return a.Share
	}
	first := claim()
	if err := first.Confirm(ctx, c, "acme"); err != nil {
		t.Errorf("the only claim is not confirmed: %v", err)
	}
	second := claim()
	if err := first.Confirm(ctx, c, "acme"); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("the first claim is confirmed after the second: %v", err)
	}
	if _, err := first.SetShare(ctx, c, io.Discard, "acme", 90, "test"); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("the first claim sets a share: %v", err)
	}
	next, err := second.SetShare(ctx, c, io.Discard, "acme", 50, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.SetShare(ctx, c, io.Discard, "acme", 45, "test"); err != nil {
		t.Errorf("the same claim sets no second share: %v", err)
	}
	if _, err := second.SetShare(ctx, c, io.Discard, "acme", 70, "test"); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("a claim sets a share twice: %v", err)
	}
	if err := second.Confirm(ctx, c, "acme"); err != nil {
		t.Errorf("a claim that has lowered the share is not confirmed: %v", err)
	}
	third := claim()
	if err := store.Found(ctx, admin.FoundFile{Sum: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := third.SetShare(ctx, c, io.Discard, "acme", 60, "test"); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("a share is set after another write: %v", err)
	}
	if now := share(); now != 45 {
		t.Errorf("in force: %d%%", now)
	}
}
