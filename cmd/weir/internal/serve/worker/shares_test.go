package worker

import (
	"log/slog"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
	"weir/ingest/await"
)

// TestRefusedVersionMayHaveLoweredAShare checks that a replica begins no lease while it cannot put the newest version in
// force, if accounts have shares in that version or in its own. It may have been away during a move.
func TestRefusedVersionMayHaveLoweredAShare(t *testing.T) {
	const (
		plain   = "apis:\n  a: {url: 'http://127.0.0.1:1', bucket: {rate: 1/s, capacity: 1}}\n"
		secret  = "apis:\n  a: {url: 'http://127.0.0.1:1', headers: {X: '${env:NO_SUCH_SECRET_HERE}'}, bucket: {rate: 1/s, capacity: 1}}\n"
		account = "accounts:\n  acme: {limits: [{rate: 100/s}], shares: {eu: 60%, us: 40%}}\n"
	)
	at60, at30 := map[string]int64{"acme": 60}, map[string]int64{"acme": 30}
	for name, of := range map[string]struct {
		before, after admin.StoredConfig
		refuses       bool
	}{
		"lowered":      {admin.StoredConfig{YAML: account + plain, Site: "eu", Shares: at60}, admin.StoredConfig{YAML: account + secret, Site: "eu", Shares: at30}, true},
		"first shared": {admin.StoredConfig{YAML: plain}, admin.StoredConfig{YAML: account + secret, Site: "eu", Shares: at60}, true},
		"no shares":    {admin.StoredConfig{YAML: plain}, admin.StoredConfig{YAML: secret}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := await.Context(t, "the versions")
			js, log := natstest.JetStream(t), slog.New(slog.DiscardHandler)
			home, err := admin.EnsureConfigStore(ctx, js, 1)
			if err != nil {
				t.Fatal(err)
			}
			first, err := home.Put(ctx, of.before, 0)
			if err != nil {
				t.Fatal(err)
			}
			present, _, err := home.Newest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			f := newFollower(followerOptions{
				nc: js.Conn(), js: js, store: home, host: openedHost{}, dedupe: queue.NewDedupe(present.Config.Dedupe), guard: newDiskGuard(js, 0, true, 1, log), site: "eu", log: log,
			}, nil, nil, present)
			if err := f.mayCall(); err != nil {
				t.Errorf("before the version: %v", err)
			}
			if _, err := home.Put(ctx, of.after, first); err != nil {
				t.Fatal(err)
			}
			entries, err := home.History(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.take(ctx, entries[len(entries)-1]); err != nil {
				t.Fatal(err)
			}
			err = f.mayCall()
			if refused := err != nil && strings.Contains(err.Error(), "NO_SUCH_SECRET_HERE"); refused != of.refuses {
				t.Errorf("after the version: %v", err)
			}
		})
	}
}

// TestRestoredAccountsMayBeShared checks which APIs a start with --restored pauses.
func TestRestoredAccountsMayBeShared(t *testing.T) {
	const apis = "\napis:\n  own: {url: 'http://127.0.0.1:1', bucket: {rate: 1/s, capacity: 1}}\n  of: {url: 'http://127.0.0.1:1', account: acme, bucket: {rate: 1/s, capacity: 1}}\n"
	for text, paused := range map[string]map[string]int{
		"accounts: {acme: {limits: [{rate: 100/s}], shares: {eu: 60%, us: 40%}}}": {"eu": 1},
		"accounts: {acme: {limits: [{rate: 100/s}]}}":                             {"eu": 1, "": 0},
	} {
		for site, want := range paused {
			c, err := config.Parse([]byte(text+apis), config.Options{Site: site})
			if err != nil {
				t.Fatal(err)
			}
			if got := mayBeShared(c, site); len(got) != want || want > 0 && got[0].Name != "of" {
				t.Errorf("site %q, %s: %d are paused, want %d", site, text, len(got), want)
			}
		}
	}
}
