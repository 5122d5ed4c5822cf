package recovery

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
)

// TestSupervisor: systemd hears when weir is ready, reads its file anew and stops, and in between that it lives.
func TestSupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  a:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	p, err := program.StartProcess(t, "NOTIFY_SOCKET="+filepath.Join(dir, "n"), "WATCHDOG_USEC=300000", "WEIR_CONFIG="+file,
		"WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=127.0.0.1:0", "WEIR_NATS_URL=")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	alive := 0
	told := func(what string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(weirtest.Patience)); err != nil {
			t.Fatal(err)
		}
		for text := make([]byte, 1<<10); ; {
			n, err := socket.Read(text)
			if err != nil {
				t.Fatalf("waited for %s: %v", what, err)
			}
			switch said := string(text[:n]); {
			case strings.HasPrefix(said, what):
				return
			case said == "WATCHDOG=1":
				alive++
			default:
				t.Fatalf("weir told %q before %s", said, what)
			}
		}
	}
	told("READY=1")
	signal := func(s os.Signal) {
		if err := p.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	told("WATCHDOG=1")
	signal(syscall.SIGHUP)
	told("RELOADING=1\nMONOTONIC_USEC=")
	told("READY=1")
	told("WATCHDOG=1")
	signal(syscall.SIGTERM)
	told("STOPPING=1")
	await.Receive(t, "the end of weir", p.Exited)
}

// TestUnitStartsWeirAgain: what weir ends with decides by the unit's rules whether systemd starts it anew: after a crash, as a segmentation
// fault makes it, and after a kill; not where the configuration or the environment is wrong.
func TestUnitStartsWeirAgain(t *testing.T) {
	t.Parallel()
	unit := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "systemd", "weir.service"))
	rule := func(name string) string {
		_, rest, _ := strings.Cut(unit, "\n"+name+"=")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	startsAgain := func(state *os.ProcessState) bool { // systemd.service(5), on-failure
		status := state.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return !slices.Contains([]syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}, status.Signal())
		}
		return status.ExitStatus() != 0 && !slices.Contains(strings.Fields(rule("RestartPreventExitStatus")), strconv.Itoa(status.ExitStatus()))
	}
	if rule("Restart") != "on-failure" || rule("SuccessExitStatus") != "" {
		t.Fatalf("the unit says Restart=%s: mend this test", rule("Restart"))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  a:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	env := []string{
		"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=", "WEIR_NATS_URL=",
	}
	for _, c := range []struct {
		signal syscall.Signal
		again  bool
	}{{syscall.SIGSEGV, true}, {syscall.SIGABRT, true}, {syscall.SIGKILL, true}, {syscall.SIGTERM, false}} {
		p, err := program.StartProcess(t, env...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if err := p.Cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		await.Receive(t, "the end of weir", p.Exited)
		if state := p.Cmd.ProcessState; startsAgain(state) != c.again {
			t.Errorf("after %v weir ends with %v: it is started again: %v", c.signal, state, !c.again)
		}
	}
	for what, wrong := range map[string]string{
		"a configuration that is wrong": "WEIR_CONFIG=" + filepath.Join(weirtest.DeployDir, "systemd", "weir.service"), "one that is not there": "WEIR_CONFIG=/no/such",
		"a variable that is wrong": "WEIR_REPLICAS=many", "a context that is not there": "WEIR_NATS_CONTEXT=none",
	} {
		cmd := exec.CommandContext(await.Context(t, "weir serve"), os.Args[0], "serve")
		cmd.Env = append(append(append(program.Environ(), "WEIR_TEST_AS_WEIR=1"), env...), wrong)
		if err := cmd.Run(); err == nil || startsAgain(cmd.ProcessState) {
			t.Errorf("%s: weir ends with %v, and is started again", what, cmd.ProcessState)
		}
	}
}
