package admin

import (
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"
)

// sharedText is a configuration with an account of two sites.
const sharedText = "accounts: {acme: {limits: [{rate: 100/s}], shares: {eu: 60%, us: 40%}}}\n" +
	"apis: {a: {url: 'http://127.0.0.1:1', account: acme, bucket: {rate: 1/s, capacity: 1}}}"

// TestUnreadVersionKeepsShares checks that the shares of the newest version are in force even if its text cannot be
// read, for example because a later weir stored it. A text that follows an older version could raise a share otherwise.
func TestUnreadVersionKeepsShares(t *testing.T) {
	js := natstest.JetStream(t)
	store, err := EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	for _, next := range []StoredConfig{
		{YAML: sharedText, Site: "eu", Shares: map[string]int64{"acme": 60}},
		{YAML: "later: {}", Site: "eu", Shares: map[string]int64{"acme": 30}},
		{YAML: "later: {}", Site: "eu", Shares: map[string]int64{"acme": 20}},
	} {
		if number, err = store.Put(t.Context(), next, number); err != nil {
			t.Fatal(err)
		}
	}
	v, last, err := store.Newest(t.Context())
	if err != nil || last != 3 || v.Number != 1 {
		t.Fatalf("%+v, %d, %v", v, last, err)
	}
	if a, _ := v.Config.Account("acme"); a.Share != 20 || v.Shares["acme"] != 20 || v.Config.InForce()["acme"] != 20 {
		t.Errorf("in force: %d, %v, %v", a.Share, v.Shares, v.Config.InForce())
	}
	if _, err := js.Publish(t.Context(), "$KV."+connect.ConfigBucket+"."+currentKey, []byte("no JSON")); err != nil {
		t.Fatal(err)
	}
	if v, _, err := store.Newest(t.Context()); err == nil || !strings.Contains(err.Error(), "may have lowered a share") {
		t.Errorf("a version that may have any shares: %+v, %v", v, err)
	}
}

// TestUnreadFirstSharesAreKept checks that the first sharing of an account is in force too if its version cannot be read.
// An unreadable version without a site may be of any time, and says nothing about shares.
func TestUnreadFirstSharesAreKept(t *testing.T) {
	js := natstest.JetStream(t)
	store, err := EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	for _, next := range []StoredConfig{
		{YAML: strings.Replace(sharedText, ", shares: {eu: 60%, us: 40%}", "", 1)},
		{YAML: "later: {}", Site: "eu", Shares: map[string]int64{"acme": 30}},
		{YAML: "later: {}"},
	} {
		if number, err = store.Put(t.Context(), next, number); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "$KV."+connect.ConfigBucket+"."+currentKey, []byte("no JSON")); err != nil {
		t.Fatal(err)
	}
	v, _, err := store.Newest(t.Context())
	if err != nil || v.Number != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if v.Site != "eu" || v.Config.InForce()["acme"] != 30 {
		t.Errorf("site %q has in force %v", v.Site, v.Config.InForce())
	}
}

// TestSiteClock checks that waits go by the clock of the site's server: the clock of the operator's machine may be an
// hour ahead. What is not known, between the two ends of a write, counts as more to wait.
func TestSiteClock(t *testing.T) {
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	before := time.Now()
	v := &Claimed{clock: siteClock{midnight.Add(-time.Hour), before, before.Add(time.Second)}}
	wait := v.Until(func(now time.Time) time.Time { return now.Truncate(24 * time.Hour).Add(24 * time.Hour) })
	if wait > time.Hour+time.Second || wait < time.Hour-await.Patience {
		t.Errorf("an hour before midnight it is %s until midnight", wait)
	}
	v.clock = siteClock{midnight.Add(-time.Millisecond), before.Add(-time.Second), before}
	if wait := v.Until(func(now time.Time) time.Time { return now.Truncate(24 * time.Hour).Add(24 * time.Hour) }); wait < 23*time.Hour {
		t.Errorf("at midnight, or just before, it is %s until midnight", wait)
	}
}

// TestSiteClockWhileAsleep checks that a wait is right when this machine has slept, or its clock was set, since the site
// stored the message: the monotonic clock may stand still meanwhile, and the wall clock may jump.
func TestSiteClockWhileAsleep(t *testing.T) {
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	began := time.Now()
	slept := began.Add(2 * time.Hour).Round(0) // the wall clock after two hours of sleep
	for name, of := range map[string]struct{ monotonic, wall time.Time }{
		"asleep":         {began, slept},
		"clock set back": {began.Add(2 * time.Hour), began.Round(0)},
	} {
		c := siteClock{midnight.Add(-time.Hour), began, began}
		earliest, latest := c.at(of.monotonic, of.wall)
		if want := midnight.Add(-time.Hour); !earliest.Equal(want) {
			t.Errorf("%s: the earliest is %s, want %s", name, earliest, want)
		}
		if want := midnight.Add(time.Hour); !latest.Equal(want) {
			t.Errorf("%s: the latest is %s, want %s", name, latest, want)
		}
	}
}
