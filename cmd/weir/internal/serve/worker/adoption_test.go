package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
)

// textAt returns a configuration of one api at a rate.
func textAt(rate string) string {
	return "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: " + rate + ", capacity: 100}\n"
}

// TestAdoptionRace checks that a configuration that is applied between a start's read and its own write stays in force.
func TestAdoptionRace(t *testing.T) {
	const before, mine, his = "1/s", "2/s", "3/s"
	js := natstest.JetStream(t)
	home, err := admin.EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	file := func(rate, sum string) *configFile {
		f := fileAt(t, rate)
		f.sum = sum
		return f
	}
	begin := func(f *configFile) *adoption {
		a, err := adopt(t.Context(), home, f, "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	rate := func() string {
		v, _, err := home.Newest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return grammar.FormatRate(v.Config.APIs[0].Rules.Key.Rate)
	}

	if _, err := begin(file(before, "before")).store(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := begin(file(mine, "mine"))
	current, last, err := home.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := admin.StoredConfig{YAML: textAt(his), From: "test", Who: "test"}
	current.Follow(&next)
	if _, err := home.Put(t.Context(), next, last); err != nil {
		t.Fatal(err)
	}
	if told, err := late.store(t.Context()); !errors.Is(err, admin.ErrLostRace) || told != nil || rate() != his {
		t.Errorf("a start put %s over what was applied meanwhile: %v, %v", rate(), told, err)
	}

	one, other := begin(file(mine, "mine")), begin(file(mine, "mine"))
	if told, err := one.store(t.Context()); err != nil || told == nil || told.Changes != 1 || rate() != mine {
		t.Errorf("the first start: %v, %v", told, err)
	}
	if told, err := other.store(t.Context()); err != nil || told != nil || other.present.Number != one.present.Number {
		t.Errorf("a start with the same file: %v, %v, version %d", told, err, other.present.Number)
	}

	spoilt := begin(file(before, "again"))
	versions, err := js.KeyValue(t.Context(), connect.ConfigBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := versions.Put(t.Context(), "current", []byte("no JSON at all")); err != nil {
		t.Fatal(err)
	}
	if told, err := spoilt.store(t.Context()); err != nil || told == nil || told.OldVersion != one.present.Number || rate() != before {
		t.Errorf("a start over an unreadable version: %+v, %v", told, err)
	}
}

// TestAdoptionAfterRollback checks that a start does not apply again a file that was applied by hand and rolled back.
// It applies another file, and also the same file if that was applied again meanwhile.
func TestAdoptionAfterRollback(t *testing.T) {
	const started, tried, third = "1/s", "2/s", "3/s"
	home, err := admin.EnsureConfigStore(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	start := func(rate string) string {
		f := fileAt(t, rate)
		a, err := adopt(t.Context(), home, f, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.store(t.Context()); err != nil {
			t.Fatal(err)
		}
		return grammar.FormatRate(a.present.Config.APIs[0].Rules.Key.Rate)
	}
	say := func(rate string, replace func(current, next *admin.StoredConfig)) {
		current, last, err := home.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := admin.StoredConfig{YAML: textAt(rate), From: "test", Who: "test"}
		replace(&current.StoredConfig, &next)
		if _, err := home.Put(t.Context(), next, last); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(file, want string) {
		t.Helper()
		if got := start(file); got != want {
			t.Errorf("a start with the file at %s runs at %s, want %s", file, got, want)
		}
	}

	runs(started, started)
	say(tried, (*admin.StoredConfig).Follow)
	say(started, (*admin.StoredConfig).RollBack)
	runs(tried, started)
	say(third, (*admin.StoredConfig).Follow) // the texts taken back stay taken back
	runs(tried, third)
	say(tried, (*admin.StoredConfig).Follow)
	runs(started, tried) // the file that serve applied last
	runs(tried, tried)
	runs(started, started) // now another file was applied last
	runs(tried, tried)

	entries, err := home.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for _, entry := range entries {
		v, err := admin.ReadVersion(entry)
		if err != nil {
			t.Fatal(err)
		}
		if v.YAML == before {
			t.Errorf("version %d says what the one before it said", v.Number)
		}
		before = v.YAML
	}
}

// TestAdoptionBesideApply checks a start that records that its file is in force already, while an operator who has read
// the versions before applies another configuration. The next start with that file does not overrule the operator. A
// record from before a file that was put in force later counts no more.
func TestAdoptionBesideApply(t *testing.T) {
	const first, same, operators = "1/s", "2/s", "3/s"
	home, err := admin.EnsureConfigStore(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	start := func(rate string) string {
		t.Helper()
		a, err := adopt(t.Context(), home, fileAt(t, rate), "")
		if err == nil {
			_, err = a.store(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return grammar.FormatRate(a.present.Config.APIs[0].Rules.Key.Rate)
	}
	read := func() (*admin.Version, uint64) {
		t.Helper()
		current, last, err := home.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return current, last
	}
	apply := func(current *admin.Version, last uint64, rate string) {
		t.Helper()
		next := admin.StoredConfig{YAML: textAt(rate), From: "test", Who: "test"}
		current.Follow(&next)
		if _, err := home.Put(t.Context(), next, last); err != nil {
			t.Fatal(err)
		}
	}

	start(first)
	current, last := read()
	apply(current, last, same)
	current, last = read()
	late, err := adopt(t.Context(), home, fileAt(t, same), "")
	if err != nil {
		t.Fatal(err)
	}
	start(same)
	apply(current, last, operators)
	if got := start(same); got != operators {
		t.Errorf("a start with the file of before runs at %s, want what the operator applied: %s", got, operators)
	}
	if got := start(first); got != first {
		t.Errorf("a start with another file runs at %s, want %s", got, first)
	}
	if _, err := late.store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := start(first); got != first {
		t.Errorf("after a late note a start runs at %s, want %s", got, first)
	}
	if got := start(same); got != same {
		t.Errorf("after a late note another file is not put in force: a start runs at %s, want %s", got, same)
	}
}

// TestAdoptionLosesToShares checks that a start does not replace a version that it cannot read if that one has changed a
// share since: the start would store the share from before.
func TestAdoptionLosesToShares(t *testing.T) {
	const text = "accounts: {acme: {limits: [{rate: 100/s}], shares: {eu: 60%, us: 40%}}}\n" +
		"apis: {a: {url: 'http://127.0.0.1:1', account: acme, bucket: {rate: 1/s, capacity: "
	home, err := admin.EnsureConfigStore(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	first, err := home.Put(t.Context(), admin.StoredConfig{YAML: text + "1}}}", Site: "eu", Shares: map[string]int64{"acme": 60}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := adopt(t.Context(), home, fileWith(t, text+"2}}}"), "eu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := home.Put(t.Context(), admin.StoredConfig{YAML: "later: {}", Site: "eu", Shares: map[string]int64{"acme": 30}}, first); err != nil {
		t.Fatal(err)
	}
	if told, err := a.store(t.Context()); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("the start stores version %+v with the shares %v: %v", told, a.present.Shares, err)
	}
}

// fileAt returns a configuration file of one api at a rate.
func fileAt(t *testing.T, rate string) *configFile {
	t.Helper()
	return fileWith(t, textAt(rate))
}

// fileWith returns a configuration file with a text.
func fileWith(t *testing.T, text string) *configFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := readConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAdoptionTellsProfiles checks that a start names exactly the vendors whose profiles differ from those of the
// version in force.
func TestAdoptionTellsProfiles(t *testing.T) {
	c, err := config.Parse([]byte("apis: {a: {url: 'http://127.0.0.1:1', vendor: stripe, bucket: {rate: 1/s, capacity: 1}}, "+
		"b: {url: 'http://127.0.0.1:1', vendor: github, bucket: {rate: 1/s, capacity: 1}}}"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stored := c.Vendors()
	stored["github"] = "2001-01-01"
	told := &strings.Builder{}
	a := &adoption{present: &admin.Version{StoredConfig: admin.StoredConfig{Vendors: stored}, Number: 7, Config: c}}
	a.tellProfiles(slog.New(slog.NewTextHandler(told, nil)))
	if text := told.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "vendor=github version=7 then=2001-01-01 now="+c.Vendors()["github"]) {
		t.Errorf("the log has %s", text)
	}
}
