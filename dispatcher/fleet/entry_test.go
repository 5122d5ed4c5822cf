package fleet

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"

	"pgregory.net/rapid"
)

// TestEntriesHoldDurations checks that an entry means the same by the clock of the replica that reads it as by that of
// the one that wrote it, however far apart they are: never less, and at most a millisecond more.
func TestEntriesHoldDurations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(1, 1<<50)
		written, received := bucket.Micros(micros.Draw(t, "written")), bucket.Micros(micros.Draw(t, "received"))
		later := func(name string) bucket.Micros {
			return written + bucket.Micros(rapid.Int64Range(-1<<40, 1<<43).Draw(t, name))
		}
		f := schedule.Finding{
			At: written, Held: later("held"), Why: "429", Turn: rapid.Int64Range(1, mostTurn).Draw(t, "turn"), Until: max(later("until"), 1), Opened: 3,
			Denied: rapid.Bool().Draw(t, "denied"), Reason: "500", Share: rapid.Int64Range(0, 1024).Draw(t, "share"),
		}
		var e entry
		e.put(&f)
		got := read(e.encode())
		back := got.finding(received)
		check := func(what string, before, after bucket.Micros) {
			want, now := max(written.Until(before), 0), max(received.Until(after), 0)
			if now < want || now > want+time.Millisecond {
				t.Errorf("%s lasts %v where it is read, and %v where it was written", what, now, want)
			}
		}
		check("the hold", f.Held, back.Held)
		check("the breaker's opening", f.Until, back.Until)
		if !back.Open() || back.Turn != f.Turn || back.Opened != 3 || back.Denied != f.Denied || back.Share != f.Share || back.At != received {
			t.Errorf("%+v is read as %+v", f, back)
		}
	})
}

// TestDamagedEntriesSayNothing checks that what weir has not written neither holds an api nor stops the reader.
func TestDamagedEntriesSayNothing(t *testing.T) {
	for _, value := range []string{"", "{", `{"turn":-1,"open":true}`, `{"turn":99999999999999999,"open":true}`, `[]`, `{"held_ms":"x"}`} {
		if got := read([]byte(value)); got.finding(1_000_000) != (schedule.Finding{At: 1_000_000}) {
			t.Errorf("%s: %+v", value, got)
		}
	}
	e := read([]byte(`{"held_ms":9223372036854775807,"turn":1,"open":true,"open_ms":-5}`))
	if f := e.finding(1_000_000); f.Held > bucket.Micros(1_000_000).Add(367*24*time.Hour) || f.Until != 1_000_000 {
		t.Errorf("%+v", f)
	}
	e.put(&schedule.Finding{At: 1, Held: 5_000_000, Why: strings.Repeat("ü", 1000), Until: 7, Reason: strings.Repeat("x", 1000)})
	if data := e.encode(); len(data) > 1200 {
		t.Errorf("an entry has %d bytes", len(data))
	}
}

func TestKeysOfEntries(t *testing.T) {
	for _, api := range []string{"pay", "a.b", "ü%*"} {
		if got, ok := apiOf(keyOf(api)); !ok || got != api || strings.ContainsAny(keyOf(api), "%* ") {
			t.Errorf("%s: %s is %s, %v", api, keyOf(api), got, ok)
		}
	}
	if _, ok := apiOf("pause.pay"); ok {
		t.Error("a pause is an entry")
	}
}
