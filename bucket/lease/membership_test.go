package lease

import (
	"errors"
	"testing"
	"time"

	"weir/bucket/natstest"
)

// TestLeaseThatFell checks that a lease is lost if the registry holds an earlier renewal than the last one. The
// registry has then lost writes, and claims may be among them.
func TestLeaseThatFell(t *testing.T) {
	js := natstest.JetStream(t)
	open := func() *Registry {
		r, err := OpenRegistry(t.Context(), js, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	l, err := open().Join(t.Context(), Member{Instance: "weir-0"})
	if err != nil {
		t.Fatal(err)
	}
	none := func(*Member) {}
	for range 3 {
		if err := l.Announce(t.Context(), none); err != nil {
			t.Fatal(err)
		}
	}
	// A renewal whose answer did not arrive must not be taken for a write of another process.
	if _, err := l.registry.put(t.Context(), memberKey(l.session), marshalMember(l.member), l.revision); err != nil {
		t.Fatal(err)
	}
	if err := l.Announce(t.Context(), none); err == nil || errors.Is(err, ErrLeaseLost) || !l.Valid() {
		t.Errorf("after a renewal without an answer: %v", err)
	}
	if err := l.Announce(t.Context(), none); err != nil {
		t.Errorf("the renewal after one without an answer: %v", err)
	}
	if err := js.DeleteStream(t.Context(), leasesStream); err != nil {
		t.Fatal(err)
	}
	if _, err := open().put(t.Context(), memberKey(l.session), marshalMember(l.member), 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Announce(t.Context(), none); !errors.Is(err, ErrLeaseLost) || l.Valid() {
		t.Errorf("a lease that fell: %v, valid %v", err, l.Valid())
	}
}

// TestMembershipEndsBeforeItIsExpelled checks that a replica that cannot renew stops calling before another replica may
// end its membership, even if its clock is slower than the other's by a fourth.
func TestMembershipEndsBeforeItIsExpelled(t *testing.T) {
	validFor := func(d time.Duration) bool {
		l := &Membership{}
		l.renewed.Store(new(time.Now().Add(-d)))
		return l.Valid()
	}
	const tick = 100 * time.Millisecond
	acts := tick
	for validFor(acts) && acts < 2*Term {
		acts += tick
	}
	if seen := time.Now(); acts <= 2*MemberRenew || Lapsed(seen, seen.Add(acts+acts/4)) {
		t.Errorf("a replica calls for %s after a renewal, and is taken for dead after %s", acts, Term)
	}
}

// TestExpelSparesWhoRenews checks that Expel ends a membership only if the caller names its newest renewal, and then
// for good.
func TestExpelSparesWhoRenews(t *testing.T) {
	r, err := OpenRegistry(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Join(t.Context(), Member{Instance: "weir-0"})
	if err != nil {
		t.Fatal(err)
	}
	seen, none := l.revision, func(*Member) {}
	if err := l.Announce(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []uint64{0, seen} {
		if ended, newest, err := r.Expel(t.Context(), l.Session(), revision); ended || newest != l.revision || err != nil {
			t.Errorf("by revision %d of %d: ended %v, stands at %d, %v", revision, l.revision, ended, newest, err)
		}
	}
	if err := l.Announce(t.Context(), none); err != nil || !l.Valid() {
		t.Errorf("who was spared cannot renew: %v", err)
	}
	for range 2 { // the second caller does not know of the first
		if ended, _, err := r.Expel(t.Context(), l.Session(), l.revision); !ended || err != nil {
			t.Errorf("by its newest renewal: ended %v, %v", ended, err)
		}
	}
	if err := l.Announce(t.Context(), none); !errors.Is(err, ErrLeaseLost) || l.Valid() {
		t.Errorf("who was ended renews: %v, valid %v", err, l.Valid())
	}
	if ended, _, err := r.Expel(t.Context(), "nothing-is-left-of-it", 17); !ended || err != nil {
		t.Errorf("a session of which nothing is left: ended %v, %v", ended, err)
	}
	left, err := r.Join(t.Context(), Member{Instance: "weir-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := left.End(t.Context()); err != nil || left.Valid() {
		t.Errorf("a lease that was given up: %v, valid %v", err, left.Valid())
	}
}
