package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"golang.org/x/sys/unix"
)

// TestHelpOnATerminal: a topic is as wide as the terminal is, and at most 100; headings are bold where the terminal knows that.
func TestHelpOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		columns, width int
		variable       string
		bold           bool
	}{{60, 60, "TERM=xterm", true}, {200, 100, "TERM=xterm", true}, {80, 80, "NO_COLOR=1", false}, {80, 80, "TERM=dumb", false}, {80, 80, "NO_COLOR=", true}} {
		text := onTerminal(t, uint16(c.columns), c.variable, "help", "promises")
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
		for line := range strings.Lines(onTerminal(t, uint16(c.columns), c.variable, "dead", "redrive", "--help")) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\r\n")) > c.width {
				t.Errorf("%+v: the help of a command has %q", c, line)
			}
		}
	}
}

// TestApplyAsksOnEveryTerminal: also on one that does not say how wide it is, as those of some shells in editors and containers.
func TestApplyAsksOnEveryTerminal(t *testing.T) {
	t.Parallel()
	screen, terminal := openTerminal(t, 0)
	watch(screen)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  credit:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	server := natstest.Start(t, t.TempDir(), 0)
	env := []string{"WEIR_NATS_URL=" + server.ClientURL(), "WEIR_REPLICAS=1"}
	for _, c := range []struct {
		answer string
		code   int
	}{{"n\n", cli.ExitRefused}, {"y\n", 0}} {
		if _, err := screen.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		cmd := startOnTerminal(t, terminal, env, "config", "apply", "-f", file)
		if code := program.ExitCode(await.Result(t, "an answer", cmd.Wait)); code != c.code {
			t.Errorf("after %q: exit code %d, want %d", c.answer, code, c.code)
		}
	}
}

// startOnTerminal starts a weir in a process of its own, whose input and output is the terminal.
func startOnTerminal(t *testing.T, terminal *os.File, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// onTerminal is what a command writes to a terminal of that many columns.
func onTerminal(t *testing.T, columns uint16, variable string, args ...string) string {
	t.Helper()
	screen, terminal := openTerminal(t, columns)
	shown := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(screen) // it ends with an error when no process has the terminal open
		shown <- string(text)
	}()
	cmd := startOnTerminal(t, terminal, []string{variable}, args...)
	err := await.Result(t, "the end of weir "+args[0], cmd.Wait)
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
