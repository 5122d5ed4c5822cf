package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

// TestHealth: a health check exits with 0 while weir is ready, with 1 while it is not, and with 5 if nothing answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  credit:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n")
	env := []string{"WEIR_HTTP_LISTEN=" + r.Worker.HTTPAddr()}
	if got := program.Command(t, env, "health"); got.Code != 0 || got.Stdout != "ready\n" {
		t.Errorf("a weir that is ready: %+v", got)
	}
	r.Stop()
	if got := program.Command(t, env, "health"); got.Code != cli.ExitUnreachable || !strings.Contains(got.Stderr, "/readyz") {
		t.Errorf("no weir: %+v", got)
	}
}

// TestHealthAsksNoProxy checks that the token does not go to a proxy.
func TestHealthAsksNoProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	env := []string{"WEIR_HTTP_LISTEN=weir.invalid:8480", "HTTP_PROXY=" + proxy.URL, "WEIR_HTTP_TOKEN=0123456789abcdef0123456789abcdef"}
	if got := program.Command(t, env, "health"); got.Code != cli.ExitUnreachable || asked.Load() > 0 {
		t.Errorf("%+v, the proxy was asked %d times", got, asked.Load())
	}
}
