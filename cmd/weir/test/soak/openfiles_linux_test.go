package soak

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"
)

// TestConnectionsLeaveTheStoreItsFiles: clients open more connections, to either port, than the process may have files.
// The store still gets the files that it needs, and jobs are accepted. Without that bound, the first file that could
// not be opened ended weir.
func TestConnectionsLeaveTheStoreItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte("apis: {sms: {url: http://127.0.0.1:1, bucket: {rate: 1/h, capacity: 100000}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nats, web := servers.FreePort(t), servers.FreePort(t)
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 1024 && exec "$0" serve`, os.Args[0])
	p, err := program.StartCommand(t, cmd, "WEIR_CONFIG="+file, "WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_NATS_LISTEN="+nats, "WEIR_HTTP_LISTEN="+web,
		"WEIR_NATS_CONNECTIONS=65536")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for range 700 {
		for _, at := range []string{nats, web} {
			if c, err := net.Dial("tcp", at); err == nil { // refused is as good
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	}
	await.Until(t, "200 jobs that are taken beside all these connections", func() bool {
		for range 200 {
			answer, err := http.Post("http://"+web+"/v1/jobs/sms/k", "", strings.NewReader("x"))
			if err != nil {
				return false
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusAccepted {
				return false
			}
		}
		return true
	})
	select {
	case <-p.Exited:
		t.Fatal("weir has ended")
	default:
	}
}
