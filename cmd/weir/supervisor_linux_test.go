package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	writeFile(t, file, "apis:\n  a:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n")
	p, err := startProcess(t, "NOTIFY_SOCKET="+filepath.Join(dir, "n"), "WATCHDOG_USEC=300000", "WEIR_CONFIG="+file,
		"WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=127.0.0.1:0", "WEIR_NATS_URL=")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	alive := 0
	told := func(what string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
		if err := p.cmd.Process.Signal(s); err != nil {
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
	await.Receive(t, "the end of weir", p.exited)
}
