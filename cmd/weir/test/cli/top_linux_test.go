package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli/top"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"golang.org/x/sys/unix"
)

// watched is what a terminal was sent.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func watch(screen *os.File) *watched {
	w := &watched{}
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := screen.Read(part)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.text.Write(part[:n])
			w.mu.Unlock()
		}
	}()
	return w
}

// last is what it was sent since the last such mark.
func (w *watched) last(mark string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text.String()
	return text[max(0, strings.LastIndex(text, mark)):]
}

func modes(t *testing.T, terminal *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// TestTop watches buckets in a terminal of 80 by 24, pauses one and resumes it, and leaves the terminal as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n")
	r.Producer().SubmitMany("pay", "deep", 6)
	r.Producer().SubmitMany("pay", "other", 2)
	screen, terminal := openTerminal(t, 80)
	size := func(rows, columns uint16) {
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	size(24, 80)
	seen, before := watch(screen), modes(t, terminal)
	cmd := startOnTerminal(t, terminal, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, "top", "--every", "500ms")
	shows := func(what string) {
		t.Helper()
		await.Until(t, what, func() bool { return strings.Contains(seen.last("\x1b[H"), what) })
	}
	press := func(keys string) {
		t.Helper()
		if _, err := screen.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	shows("> deep")
	await.Until(t, "a whole frame", func() bool {
		text := seen.last("\x1b[H")
		return strings.Contains(text, "> deep") && strings.Contains(text, "other") && strings.Contains(text, "pay") && strings.Count(text, "\r\n") == 23
	})
	press("\x1b[B")
	shows("> other")
	press("p")
	shows("pause pay/other? y: yes")
	press("y")
	shows("pause pay/other: done")
	if out, _ := r.CLI().Run("status", "--json"); !strings.Contains(out, `"key":"other"`) || strings.Contains(out, `"key":"deep"`) {
		t.Errorf("paused is %s", out)
	}
	press("ry")
	shows("resume pay/other: done")
	size(12, 50)
	await.Until(t, "a smaller frame", func() bool { return strings.Count(seen.last("\x1b[H"), "\r\n") == 11 })
	press("q")
	if err := await.Result(t, "the end", cmd.Wait); err != nil {
		t.Error(err)
	}
	shows("\x1b[?1049l")
	if after := modes(t, terminal); after != before {
		t.Errorf("the terminal is left as %+v, was %+v", after, before)
	}
}

// TestTopPutsTheTerminalBack: when it is ended by a signal, and when it panics.
func TestTopPutsTheTerminalBack(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n")
	screen, terminal := openTerminal(t, 80)
	seen, before := watch(screen), modes(t, terminal)
	cmd := startOnTerminal(t, terminal, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, "top")
	await.Until(t, "a frame", func() bool { return strings.Contains(seen.last("\x1b[H"), "no job waits") })
	if raw := modes(t, terminal); raw == before {
		t.Error("the terminal is as it was: mend this test")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Result(t, "the end", cmd.Wait); err != nil {
		t.Error(err)
	}
	if after := modes(t, terminal); after != before {
		t.Error("after a signal the terminal is not as it was")
	}
	err := await.Result(t, "a panic", func() error { // without a connection asking panics
		return top.Run(t.Context(), top.Options{In: terminal, Out: terminal, Source: top.NewSource((*connect.Connection)(nil), ""), Every: time.Second})
	})
	if !errors.Is(err, top.ErrPanic) {
		t.Errorf("it ends with %v", err)
	}
	if after := modes(t, terminal); after != before {
		t.Error("after a panic the terminal is not as it was")
	}
	await.Until(t, "the former screen", func() bool { return strings.HasSuffix(seen.last("\x1b[?1049h"), "\x1b[?1049l") })
}

// TestTopOnce: without a terminal one frame is printed, and its numbers are those of the other commands.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n  sms:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	r.Producer().SubmitMany("pay", "k", 4)
	out := r.CLI().Must("top")
	for _, want := range []string{"weir at ", " is healthy", "pay ", "sms ", "/9 ", "no dead letters", "IN/S"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("controls in what is no terminal: %q", out)
	}
	var frame struct {
		Healthy bool
		APIs    []struct{ API string }
		Buckets []struct {
			API, Key string
			Depth    int
		}
		Rates []struct{ API string }
	}
	if err := json.Unmarshal([]byte(r.CLI().Must("top", "--json", "--api", "pay")), &frame); err != nil {
		t.Fatal(err)
	}
	if len(frame.APIs) != 1 || len(frame.Rates) != 1 || len(frame.Buckets) != 1 || frame.Buckets[0].Key != "k" || frame.Buckets[0].Depth < 3 {
		t.Errorf("%+v", frame)
	}
	if _, code := r.CLI().Run("top", "--api", "none"); code != 3 {
		t.Errorf("an api that there is not: %d", code)
	}
}
