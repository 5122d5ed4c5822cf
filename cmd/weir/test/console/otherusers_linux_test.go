package console

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"golang.org/x/sys/unix"
)

// TestOtherUsersOverHTTP: another user of the machine can submit jobs and read without a token, but cannot change
// anything.
func TestOtherUsersOverHTTP(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.DoorYAML)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		runtime.LockOSThread() // a socket is of the user whose thread made it
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(54321); err != nil {
			return nil, err
		}
		defer func() { _ = unix.Setfsuid(0) }()
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/v1/jobs/credit/k", "x", 202},
		{"GET", "/api/v1/status", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/api/v1/config", "", 200},
		{"POST", "/api/v1/config/apply", `{"text": "apis: {}"}`, 403},
		{"POST", "/api/v1/apis/credit/pause", `{"why": "a joke"}`, 403},
		{"POST", "/api/v1/dead/purge", `{}`, 403},
		{"POST", "/api/v1/dead/1/reveal", `{}`, 403},
	} {
		req, err := http.NewRequestWithContext(await.Context(t, c.path), c.method, "http://"+r.Worker.HTTPAddr()+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != c.want {
			t.Errorf("another user's %s %s is answered %d %s %v, want %d", c.method, c.path, res.StatusCode, answer, err, c.want)
		}
		if c.want == 403 && !strings.Contains(string(answer), "sudo -u") {
			t.Errorf("another user's %s is told no more than %s", c.path, answer)
		}
	}
	if status, body := r.HTTP().Say("POST", "/api/v1/apis/credit/pause", "", `{"why": "who runs weir says so"}`); status != 200 {
		t.Errorf("whom weir runs as is answered %d %s", status, body)
	}
}
