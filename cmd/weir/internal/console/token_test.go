package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"weir/ingest/await"
)

const token = "0123456789abcdef"

func start(t *testing.T, listen, token string) *Server {
	t.Helper()
	s, err := Listen(Options{
		Listen: listen, Token: token, Gatherer: prometheus.NewRegistry(), Version: "1",
		Ready: func(context.Context) error { return errors.New("the store is full") },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func get(t *testing.T, s *Server, path, authorization string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(await.Context(t, path), http.MethodGet, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestOnlyWhoBearsTheTokenSeesAnything: probes are open, and tell a stranger no more than yes or no.
func TestOnlyWhoBearsTheTokenSeesAnything(t *testing.T) {
	s := start(t, "127.0.0.1:0", token)
	for _, path := range []string{"/", "/metrics"} {
		for authorization, want := range map[string]int{
			"": 401, "Bearer": 401, "Bearer ": 401, "Bearer 0123456789abcdeF": 401, "Bearer " + token + "x": 401, "Basic " + token: 401,
			token: 401, "Bearer " + token: 200, "bearer " + token: 200,
		} {
			if got, _ := get(t, s, path, authorization); got != want {
				t.Errorf("%s with %q answers %d, want %d", path, authorization, got, want)
			}
		}
	}
	if got, _ := get(t, s, "/livez", ""); got != 200 {
		t.Errorf("/livez answers %d", got)
	}
	if got, body := get(t, s, "/readyz", ""); got != 503 || strings.Contains(body, "store") {
		t.Errorf("/readyz tells a stranger %d %s", got, body)
	}
	if _, body := get(t, s, "/readyz", "Bearer "+token); !strings.Contains(body, "the store is full") {
		t.Errorf("/readyz tells who may know only %s", body)
	}
}

// TestNobodyListensToTheWorldWithoutAToken: an address that others can reach is refused without one.
func TestNobodyListensToTheWorldWithoutAToken(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.com:0"} {
		s, err := Listen(Options{Listen: listen, Gatherer: prometheus.NewRegistry()})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s is taken without a token", listen)
		} else if !strings.Contains(err.Error(), "WEIR_HTTP_TOKEN") {
			t.Errorf("%s: the message has no fix: %v", listen, err)
		}
	}
	open := start(t, "127.0.0.1:0", "")
	if got, _ := get(t, open, "/metrics", ""); got != 200 {
		t.Errorf("on a loopback address without a token /metrics answers %d", got)
	}
	if got, _ := get(t, start(t, "0.0.0.0:0", token), "/metrics", ""); got != 401 {
		t.Errorf("a stranger gets %d", got)
	}
}
