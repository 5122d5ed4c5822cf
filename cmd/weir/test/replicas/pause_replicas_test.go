package replicas

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWhoKeepsSilentIsNamed: a replica that keeps its right to call and does not answer is no success. On a machine
// that delays its renewals the replica loses that right, or the command ends its lease: then it may not call any more,
// and the test is repeated beside another silent replica.
func TestWhoKeepsSilentIsNamed(t *testing.T) {
	t.Parallel()
	const most = 10
	url := servers.OneServer(t)
	r := weirtest.NewReplicas(t, url, 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for range most {
		m := joinMute(t, js, registry)
		got := program.Command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "pause", "pay")
		if lapsed := strings.Contains(got.Stderr, "may call nothing before it has heard of it"); lapsed || m.ended() {
			continue
		}
		if got.Code != 1 || !strings.Contains(got.Stderr, "mute") || !strings.Contains(got.Stderr, "calls may still start there") {
			t.Errorf("%+v", got)
		}
		return
	}
	t.Fatalf("the machine delayed renewals for %s in each of %d tries", lease.Term, most)
}

// mute is a replica that renews its lease and does nothing else.
type mute struct {
	t        *testing.T
	registry *lease.Registry
	session  string
	writes   jetstream.KeyWatcher // of its lease
}

func joinMute(t *testing.T, js jetstream.JetStream, registry *lease.Registry) mute {
	t.Helper()
	member, err := registry.Join(t.Context(), lease.Member{Instance: "mute"})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), lease.LeasesBucket)
	if err != nil {
		t.Fatal(err)
	}
	writes, err := kv.Watch(t.Context(), "member."+member.Session())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _ = member.Keep(ctx, func(*lease.Member) {}, func() {}) }() // an ended lease is seen in the registry
	return mute{t, registry, member.Session(), writes}
}

// ended reports whether the replica's lease has ended. It may end only after a whole term without a renewal, by the
// server's clock.
func (m mute) ended() bool {
	m.t.Helper()
	members, err := m.registry.Members(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if slices.ContainsFunc(members, func(s lease.Sighting) bool { return s.Session == m.session }) {
		return false
	}
	var renewed time.Time
	for patience := time.After(weirtest.Patience); ; {
		select {
		case write := <-m.writes.Updates():
			switch {
			case write == nil: // the end of what was there at the beginning
			case write.Operation() == jetstream.KeyValuePut:
				renewed = write.Created()
			default:
				if without := write.Created().Sub(renewed); without < lease.Term {
					m.t.Fatalf("the lease of a replica that is there was ended %s after its renewal", without)
				}
				return true
			}
		case <-patience:
			m.t.Fatal("the end of a lease is not in the registry")
		}
	}
}
