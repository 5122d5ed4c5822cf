package proposal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestSameWithAnotherProfile checks that a file that changes nothing counts as the same, unless the version in force
// was stored with another profile of its vendor. Then a new version records the profile that the operator has seen.
func TestSameWithAnotherProfile(t *testing.T) {
	c, err := config.Parse([]byte("apis: {a: {url: 'http://127.0.0.1:1', vendor: stripe, bucket: {rate: 1/s, capacity: 1}}}"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[string]bool{c.Vendors()["stripe"]: true, "2001-01-01": false} {
		current := &admin.Version{StoredConfig: admin.StoredConfig{Vendors: map[string]string{"stripe": revision}}, Number: 3, Config: c}
		p := &Proposal{Config: c, current: current, last: 3}
		if d := p.differs(); d.Same != want || len(d.Changes) != 0 {
			t.Errorf("with the profile of %s it is the same: %v, changes %v", revision, d.Same, d.Changes)
		}
	}
}

// TestTakenBackComesLater checks that the version that replaces one that cannot be followed has a greater Order. Limits
// in Redis refuse an earlier one: a replica that follows it makes no calls of an api that has changed its account.
func TestTakenBackComesLater(t *testing.T) {
	const text = "apis: {a: {url: 'http://127.0.0.1:1', bucket: {rate: %d/s, capacity: 1}}}"
	first := admin.StoredConfig{YAML: fmt.Sprintf(text, 1), Order: (*admin.StoredConfig)(nil).After()}
	store := takenBack(t, first, &Proposal{Text: fmt.Sprintf(text, 2)})
	entries, err := store.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	orders := map[uint64]int64{}
	for _, e := range entries {
		v, err := admin.ReadVersion(e)
		if err != nil {
			t.Fatal(err)
		}
		orders[v.Number] = v.Order
	}
	if len(orders) != 3 || orders[2] <= orders[1] || orders[3] <= orders[2] {
		t.Errorf("the orders of the versions are %v, want three that rise", orders)
	}
}

// emptyStore returns a store of configurations without a version, on a server that stores events.
func emptyStore(t *testing.T) (jetstream.JetStream, admin.ConfigStore) {
	t.Helper()
	js := natstest.JetStream(t)
	store, err := admin.EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"weir.events.>"}}); err != nil {
		t.Fatal(err)
	}
	return js, store
}

// TestFirstVersionHasAnOrder checks that a version that follows none has an Order, too. An account in Redis may have seen
// a configuration before the store of versions was lost, and takes a version without an Order for an earlier one.
func TestFirstVersionHasAnOrder(t *testing.T) {
	js, store := emptyStore(t)
	if _, err := js.Conn().Subscribe("weir.operator.config", func(m *nats.Msg) {
		_, newest, err := store.Newest(context.Background())
		data, failed := json.Marshal(admin.ConfigState{Instance: "one", Seen: newest, Version: newest})
		if err := errors.Join(err, failed, m.Respond(data)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	const text = "apis: {a: {url: 'http://127.0.0.1:1', bucket: {rate: 1/s, capacity: 1}}}"
	c, err := config.Parse([]byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Proposal{Text: text, Config: c}
	to := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	if _, err := p.Apply(t.Context(), to, t.Output(), func(Difference) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	if v, _, err := store.Newest(t.Context()); err != nil || v == nil || v.Order == 0 {
		t.Errorf("the first version is %+v, want one with an order: %v", v, err)
	}
}

// takenBack stores a first version, and applies a proposal that a replica cannot follow. Before the replica says so,
// messages are stored on the subjects of meanwhile.
func takenBack(t *testing.T, first admin.StoredConfig, p *Proposal, meanwhile ...string) admin.ConfigStore {
	t.Helper()
	js, store := emptyStore(t)
	if _, err := store.Put(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	answer := func(m *nats.Msg) {
		_, newest, err := store.Newest(context.Background())
		state := admin.ConfigState{Instance: "one", Seen: newest, Version: newest}
		if newest == 2 {
			state.Version, state.Why = 1, "for the test"
			for _, subject := range meanwhile {
				_, failed := js.Publish(context.Background(), subject, []byte("{}"))
				err = errors.Join(err, failed)
			}
		}
		data, failed := json.Marshal(state)
		if err := errors.Join(err, failed, m.Respond(data)); err != nil {
			t.Error(err)
		}
	}
	if _, err := js.Conn().Subscribe("weir.operator.config", answer); err != nil {
		t.Fatal(err)
	}
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	var err error
	if p.Config, err = config.Parse([]byte(p.Text), config.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(t.Context(), c, t.Output(), func(Difference) (bool, error) { return true, nil })
	if !errors.Is(err, admin.ErrCannotFollow) {
		t.Fatal(err)
	}
	return store
}

// TestTakenBackRaisesNoShare checks that the version that replaces one that cannot be followed keeps a share that the
// failed version has lowered. A move may have raised another site meanwhile. An account that had no shares before has
// none again, if no move has claimed the site meanwhile: a replica that does not know its site can follow then.
func TestTakenBackRaisesNoShare(t *testing.T) {
	const (
		text = "accounts: {acme: {limits: [{rate: 100/s}]%s}}\napis: {a: {url: 'http://127.0.0.1:1', account: acme, bucket: {rate: 1/s, capacity: 1}}}"
		at60 = ", shares: {eu: 60%, us: 40%}"
		at30 = ", shares: {eu: 30%, us: 40%}"
	)
	for name, of := range map[string]struct {
		before, after string
		site          string
		shares        map[string]int64
		want          map[string]int64
	}{
		"lowered":       {at60, at30, "eu", map[string]int64{"acme": 60}, map[string]int64{"acme": 30}},
		"first shared":  {"", at60, "", nil, nil},
		"claimed since": {"", at60, "", nil, map[string]int64{"acme": 60}},
	} {
		t.Run(name, func(t *testing.T) {
			first := admin.StoredConfig{YAML: fmt.Sprintf(text, of.before), Site: of.site, Shares: of.shares}
			var meanwhile []string
			site := of.site
			if name == "claimed since" {
				meanwhile, site = []string{"$KV." + connect.ConfigBucket + ".move"}, "eu"
			}
			store := takenBack(t, first, &Proposal{Text: fmt.Sprintf(text, of.after), Site: "eu"}, meanwhile...)
			last, number, err := store.Newest(t.Context())
			if want := uint64(3 + len(meanwhile)); err != nil || number != want || last.Number != want {
				t.Fatalf("version %d, want %d: %v", number, want, err)
			}
			if last.YAML != first.YAML || last.Site != site || !maps.Equal(last.Shares, of.want) {
				t.Errorf("the last version is of site %q with the shares %v, want %v, and has the text %s", last.Site, last.Shares, of.want, last.YAML)
			}
		})
	}
}

// TestALimitKeepsItsUnit checks that a quota does not become a budget under its name, neither when a file is applied nor
// by a rollback: it would keep its count.
func TestALimitKeepsItsUnit(t *testing.T) {
	js := natstest.JetStream(t)
	store, err := admin.EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	const text = "apis: {a: {url: 'http://127.0.0.1:1', price: 0.01, bucket: {rate: 1/s, capacity: 1}, limits: [{name: day, %s}]}}"
	version := uint64(0)
	for _, limit := range []string{"budget: 5.00/day", "quota: 1000/day"} {
		if version, err = store.Put(t.Context(), admin.StoredConfig{YAML: fmt.Sprintf(text, limit)}, version); err != nil {
			t.Fatal(err)
		}
	}
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	applied := &Proposal{From: "weir.yaml", Text: fmt.Sprintf(text, "budget: 7.00/day")}
	if applied.Config, err = config.Parse([]byte(applied.Text), config.Options{}); err != nil {
		t.Fatal(err)
	}
	back, err := Earlier(t.Context(), c, "me", 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Proposal{"apply": applied, "rollback": back} {
		asked := false
		_, err := p.Apply(t.Context(), c, t.Output(), func(Difference) (bool, error) {
			asked = true
			return false, nil
		})
		if wrong := (*problem.Errors)(nil); !errors.As(err, &wrong) || asked {
			t.Errorf("%s: %v", name, err)
		}
	}
}
