package bucket

import (
	"errors"
	"testing"
)

// TestLeaseThatFell: a lease that stands at an earlier renewal than the last is lost: the registry has lost writes, and who
// knows whose.
func TestLeaseThatFell(t *testing.T) {
	js := newTestPartition(t).queue.js
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
	// A renewal of which it did not hear is none of somebody else's.
	if _, err := l.registry.put(t.Context(), memberKey(l.session), marshalMember(l.member), l.revision); err != nil {
		t.Fatal(err)
	}
	if err := l.Announce(t.Context(), none); err == nil || errors.Is(err, ErrLeaseLost) || !l.Valid() {
		t.Errorf("after a renewal without an answer: %v", err)
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
