package deadview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// randomLetter returns a letter with arbitrary bytes wherever a message may have them.
func randomLetter(r *rand.Rand, i int) *deadletter.Letter {
	some := func(most int) []byte {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = byte(r.UintN(256))
		}
		return b
	}
	value := func() string {
		text := strings.Map(func(c rune) rune {
			if c == '\r' || c == '\n' {
				return -1
			}
			return c
		}, string(bytes.ToValidUTF8(some(40), []byte("\xc3"))))
		return strings.Trim(text, " \t")
	}
	h := nats.Header{"Weir-Path": {"/p"}}
	for range r.IntN(6) {
		name := fmt.Sprintf("X-%c%d", 'A'+r.IntN(3), r.IntN(4))
		for range 1 + r.IntN(3) {
			h[name] = append(h[name], value())
		}
	}
	h["X-Split"] = []string{"\xc3", "\xa9"} // valid UTF-8 only when joined
	reasons := deadletter.Reasons()
	return &deadletter.Letter{
		API: "pay", Key: string(some(12)), JobID: fmt.Sprint("job-", i), Reason: reasons[r.IntN(len(reasons))], Header: h, Body: some(300),
		At: time.Now(), Detail: "it died", Attempts: r.IntN(5), Status: r.IntN(600), Billed: deadletter.BilledUnknown, Redrives: r.IntN(3),
	}
}

// store returns a server for letters, and a browser of them.
func store(t *testing.T) (jetstream.JetStream, *deadletter.Browser) {
	t.Helper()
	js := natstest.JetStream(t)
	_, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 30, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return js, b
}

// exported returns every letter as a line of JSON, without its sequence.
func exported(t *testing.T, b *deadletter.Browser) (lines []string) {
	t.Helper()
	scope, err := b.Scope(t.Context(), deadletter.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	for walk := scope.Walk(deadletter.Whole); ; {
		chunk, err := walk.Chunk(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk) == 0 {
			return lines
		}
		for i := range chunk {
			e := Export(&chunk[i])
			e.Seq = 0
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
	}
}

// imported imports lines, and returns how many letters were stored and how many were known.
func imported(t *testing.T, b *deadletter.Browser, lines []string) (stored, known int) {
	t.Helper()
	ctx := await.Context(t, "an import")
	i, err := b.NewImport(ctx, deadletter.MostImported)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		var e Exported
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		c, err := e.Copy()
		if err == nil {
			err = i.Add(ctx, c)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if err := i.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return i.Stored, i.Known
}

// wire returns the letters' messages as the stream has them: subject, headers and body. It removes headers that an
// import adds, and restores those that it replaces.
func wire(t *testing.T, js jetstream.JetStream, count int) (messages []string) {
	t.Helper()
	for seq := 1; len(messages) < count; seq++ {
		m, err := stream.AskLeader(t.Context(), js.Conn(), deadletter.Stream, fmt.Sprintf(`{"seq":%d}`, seq))
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			continue
		}
		lines := strings.SplitAfter(string(m.Headers), "\r\n")
		id := ""
		lines = slices.DeleteFunc(lines, func(line string) bool {
			value, own := strings.CutPrefix(line, deadletter.HeaderImported+": ")
			if own {
				_, id, _ = strings.Cut(strings.TrimSpace(value), " ")
			}
			return own
		})
		for i, line := range lines {
			if id != "" && strings.HasPrefix(line, ingest.HeaderMsgID+": ") {
				lines[i] = ingest.HeaderMsgID + ": " + id + "\r\n"
			}
		}
		// Clients of NATS write names in any order, but keep the order of one name's values.
		slices.SortStableFunc(lines, func(x, y string) int {
			x, _, _ = strings.Cut(x, ":")
			y, _, _ = strings.Cut(y, ":")
			return strings.Compare(x, y)
		})
		messages = append(messages, m.Subject+"\n"+strings.Join(lines, "")+string(m.Data))
	}
	return messages
}

// TestRoundTrip checks that letters are the same to the byte after an export and an import on another server, whatever
// they contain: in the stream, for readers, and in a second export. A repeated import stores nothing, and an import
// after a purge stores everything.
func TestRoundTrip(t *testing.T) {
	const count = 400
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	from, source := store(t)
	for i := range count {
		if _, err := from.PublishMsg(t.Context(), randomLetter(r, i).Message()); err != nil {
			t.Fatal(err)
		}
	}
	lines := exported(t, source)
	if len(lines) != count {
		t.Fatalf("%d of %d letters are exported", len(lines), count)
	}
	to, target := store(t)
	if stored, known := imported(t, target, lines); stored != count || known != 0 {
		t.Errorf("%d stored, %d known", stored, known)
	}
	if got := exported(t, target); !slices.Equal(got, lines) {
		for i := range got {
			if got[i] != lines[i] {
				t.Fatalf("exported again:\n%s\nwant\n%s", got[i], lines[i])
			}
		}
	}
	want, got := wire(t, from, count), wire(t, to, count)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("on the wire:\n%q\nwant\n%q", got[i], want[i])
		}
	}
	for _, b := range []*deadletter.Browser{target, source} {
		if stored, known := imported(t, b, lines); stored != 0 || known != count {
			t.Errorf("again: %d stored, %d known", stored, known)
		}
	}
	s, err := to.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored, _ := imported(t, target, lines); stored != count || !slices.Equal(exported(t, target), lines) {
		t.Errorf("after a purge %d are stored", stored)
	}
}

// FuzzCopy checks that whatever a file contains, what is accepted as a letter is one, and is the same in a new export.
func FuzzCopy(f *testing.F) {
	f.Add(`{"seq":1,"stored":"2026-01-02T15:04:05.000000001Z","subject":"weir.dead.pay.overflow.k","headers":{"Nats-Msg-Id":["letter.x"],"X":["a","b"]},"body":"x"}`)
	f.Add(`{"stored":"2026-01-02T15:04:05Z","subject":"weir.dead._.invalid._","headers":{},"headers_base64":{"X":["/w=="]},"body_base64":"/w=="}`)
	f.Add(`{"stored":"2026-01-02T15:04:05Z","subject":"weir.jobs.pay.k","headers":{"Nats-Rollup":["all"]}}`)
	f.Fuzz(func(t *testing.T, line string) {
		var e Exported
		if json.Unmarshal([]byte(line), &e) != nil {
			return
		}
		c, err := e.Copy()
		if err != nil || c.Check() != nil {
			return
		}
		if !strings.HasPrefix(c.Subject, "weir.dead.") {
			t.Fatalf("subject %q", c.Subject)
		}
		k := deadletter.Kept{Stored: c.Stored, Published: c.Subject}
		k.Header, k.Body = c.Header, c.Body
		again := Export(&k)
		back, err := again.Copy()
		if err != nil || !bytes.Equal(back.Body, c.Body) || len(back.Header) != len(c.Header) || !back.Stored.Equal(c.Stored) {
			t.Fatalf("%+v became %+v, %v", c, back, err)
		}
		for name, values := range c.Header {
			if !slices.Equal(back.Header[name], values) {
				t.Fatalf("header %q: %q became %q", name, values, back.Header[name])
			}
		}
	})
}

// TestLineWithoutAnEnd checks the error for a file with a line that no export writes.
func TestLineWithoutAnEnd(t *testing.T) {
	err := ReadExported(strings.NewReader(strings.Repeat("x", 2<<16)), 1<<16, func(int, deadletter.Copy) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "letter 1 of the file: its line is longer than 65536 bytes") {
		t.Error(err)
	}
}
