package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"golang.org/x/sys/unix"
)

// TestHelpOnATerminal: a topic is as wide as the terminal is, and at most 100; headings are bold where the terminal knows that.
func TestHelpOnATerminal(t *testing.T) {
	for _, c := range []struct {
		columns, width int
		variable       string
		bold           bool
	}{{60, 60, "", true}, {200, 100, "", true}, {80, 80, "NO_COLOR=1", false}, {80, 80, "TERM=dumb", false}, {80, 80, "NO_COLOR=", true}} {
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "") // so that it is put back
		if err := os.Unsetenv("NO_COLOR"); err != nil {
			t.Fatal(err)
		}
		if name, value, ok := strings.Cut(c.variable, "="); ok {
			t.Setenv(name, value)
		}
		text := onTerminal(t, uint16(c.columns), "help", "promises")
		if bold := strings.Contains(text, "\x1b[1mpromises: "); bold != c.bold {
			t.Errorf("%+v: the heading is bold: %v", c, bold)
		}
		widest := 0
		for line := range strings.Lines(strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(text)) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\r\n")))
		}
		if widest > c.width || widest < c.width-10 {
			t.Errorf("%+v: the widest line has %d characters", c, widest)
		}
		for line := range strings.Lines(onTerminal(t, uint16(c.columns), "dead", "redrive", "--help")) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\r\n")) > c.width {
				t.Errorf("%+v: the help of a command has %q", c, line)
			}
		}
	}
}

// TestApplyAsksOnEveryTerminal: also on one that does not say how wide it is, as those of some shells in editors and containers.
func TestApplyAsksOnEveryTerminal(t *testing.T) {
	screen, terminal := openTerminal(t, 0)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  credit:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	server := natstest.Start(t, t.TempDir(), 0)
	t.Setenv("WEIR_NATS_URL", server.ClientURL())
	t.Setenv("WEIR_REPLICAS", "1")
	for _, c := range []struct {
		answer string
		code   int
	}{{"n\n", cli.ExitRefused}, {"y\n", 0}} {
		if _, err := screen.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		root := commands.Root()
		root.SetArgs([]string{"config", "apply", "-f", file})
		root.SetIn(terminal)
		root.SetErr(terminal)
		root.SetOut(io.Discard)
		err := root.ExecuteContext(await.Context(t, "an answer"))
		var exit *cli.Exit
		if errors.As(err, &exit); (exit == nil) != (c.code == 0) || exit != nil && exit.Code != c.code {
			t.Errorf("after %q: %v, want exit code %d", c.answer, err, c.code)
		}
	}
}

// onTerminal is what a command writes to a terminal of that many columns.
func onTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	screen, terminal := openTerminal(t, columns)
	shown := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(screen) // it ends with an error when no process has the terminal open
		shown <- string(text)
	}()
	root := commands.Root()
	root.SetArgs(args)
	root.SetOut(terminal)
	err := root.ExecuteContext(t.Context())
	if closed := terminal.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	return await.Receive(t, "what a command shows", shown)
}

// openTerminal opens a terminal of that many columns: the screen, and the end that a command gets.
func openTerminal(t *testing.T, columns uint16) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() }) // it may be closed already
	return screen, terminal
}
