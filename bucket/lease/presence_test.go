package lease

import (
	"fmt"
	"os"
	"testing"
)

// TestPresence: a session's process is taken for gone only where it was on this machine, showed itself, and does so no more.
func TestPresence(t *testing.T) {
	here, elsewhere := newPresence(), &presence{host: "0123456789abcdef"}
	if here.host == "" {
		t.Skip("this system does not tell which machine it is")
	}
	session := here.nameSession("abc")
	if session == "abc" || newPresence().gone(session) {
		t.Fatalf("%s is gone", session)
	}
	for range 10_000 { // whoever asks leaves nothing with it
		if newPresence().gone(session) {
			t.Fatal("it is gone after it was asked for often")
		}
	}
	if elsewhere.gone(session) || (&presence{}).gone(session) || here.gone("abc") || here.gone("abc-") || here.gone("") {
		t.Error("one that cannot be known to be gone is taken for it")
	}
	if again := here.nameSession("abc"); again != "abc" {
		t.Errorf("a name that is taken was shown again: %s", again)
	}
	if err := here.sockets[0].Close(); err != nil {
		t.Fatal(err)
	}
	if elsewhere.gone(session) || !newPresence().gone(session) {
		t.Error("only who shares its machine may find it gone, and must")
	}
}

// TestPresenceIsBounded: a process that loses its lease again and again opens no socket more for each.
func TestPresenceIsBounded(t *testing.T) {
	p := newPresence()
	if p.host == "" {
		t.Skip("only Linux tells one network namespace from another")
	}
	t.Cleanup(func() {
		for _, s := range p.sockets {
			_ = s.Close()
		}
	})
	for i := range mostSockets + 10 {
		session := fmt.Sprintf("bounded%d.%d", os.Getpid(), i)
		if named := p.nameSession(session); (named != session) != (i < mostSockets) {
			t.Fatalf("session %d is named %s", i, named)
		}
	}
	if len(p.sockets) != mostSockets {
		t.Errorf("%d sockets", len(p.sockets))
	}
}
