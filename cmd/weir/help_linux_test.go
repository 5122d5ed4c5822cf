package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"weir/ingest/await"
)

// TestHelpOnATerminal: a topic is as wide as the terminal is, and at most 100; headings are bold where the terminal knows that.
func TestHelpOnATerminal(t *testing.T) {
	for _, c := range []struct {
		columns, width int
		variable       string
		bold           bool
	}{{60, 60, "", true}, {200, widestHelp, "", true}, {80, 80, "NO_COLOR=1", false}, {80, 80, "TERM=dumb", false}} {
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
	}
}

// onTerminal is what a command writes to a terminal of that many columns.
func onTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	defer screen.Close()
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(screen) // it ends with an error when nobody has the terminal any more
		shown <- string(text)
	}()
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(terminal)
	err = root.ExecuteContext(t.Context())
	if closed := terminal.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	return await.Receive(t, "what a command shows", shown)
}
