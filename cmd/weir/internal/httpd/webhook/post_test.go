package webhook

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/ingest/await"
)

// hookAt returns a receiver at a url.
func hookAt(t *testing.T, url string) *config.Receiver {
	t.Helper()
	t.Setenv("HOOK_SECRET", "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g=")
	c, err := config.Parse(fmt.Appendf(nil, "notifications: {ops: {url: %q, secret: \"${env:HOOK_SECRET}\"}}\n", url), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &c.Notifications[0].Receiver
}

// TestPost checks that whatever the receiver does, the post ends, its error does not contain the address, and no other
// host is contacted.
func TestPost(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	end := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/redirect/swordfish":
			http.Redirect(w, q, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/hang/swordfish":
			select {
			case <-end:
			case <-q.Context().Done():
			}
		case "/cut/swordfish":
			panic(http.ErrAbortHandler)
		case "/switch/swordfish", "/gibberish/swordfish":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if strings.HasPrefix(q.URL.Path, "/switch") {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				t.Cleanup(func() { _ = conn.Close() })
				return
			}
			_, _ = io.WriteString(conn, "swordfish is no answer\r\n\r\n")
			_ = conn.Close()
		case "/refuse/swordfish":
			w.WriteHeader(http.StatusBadRequest)
		case "/later/swordfish":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/endless/swordfish":
			for q.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}
	}))
	defer receiver.Close()
	defer close(end)
	client := newClient(2)
	for path, want := range map[string]failure{
		"/taken/swordfish": {}, "/endless/swordfish": {}, "/redirect/swordfish": {status: 307}, "/hang/swordfish": {}, "/cut/swordfish": {},
		"/switch/swordfish": {status: 101}, "/gibberish/swordfish": {},
		"/refuse/swordfish": {status: 400}, "/later/swordfish": {status: 429, retryAfter: 7 * time.Second},
	} {
		// All receivers but /hang answer, however late on a busy machine.
		if client.Timeout = await.Patience; strings.HasPrefix(path, "/hang") {
			client.Timeout = 500 * time.Millisecond
		}
		no := await.Result(t, path, func() *failure {
			return post(t.Context(), client, hookAt(t, receiver.URL+path), message{id: "id", body: []byte("{}")})
		})
		taken := path == "/taken/swordfish" || path == "/endless/swordfish"
		switch {
		case (no == nil) != taken:
			t.Errorf("%s: %v", path, no)
		case no != nil && (no.status != want.status || no.retryAfter != want.retryAfter || no.refuses() != (want.status == 400)):
			t.Errorf("%s: %+v", path, no)
		case no != nil && (strings.Contains(no.why, "swordfish") || strings.Contains(no.why, strings.TrimPrefix(receiver.URL, "http://"))):
			t.Errorf("%s tells %s", path, no.why)
		}
	}
	receiver.CloseClientConnections()
	for _, nobody := range []string{"http://127.0.0.1:1/swordfish", "http://swordfish.invalid/", "https://" + strings.TrimPrefix(receiver.URL, "http://") + "/swordfish"} {
		no := post(t.Context(), client, hookAt(t, nobody), message{id: "id"})
		if no == nil || strings.Contains(no.why, "swordfish") || strings.Contains(no.why, "127.0.0.1") {
			t.Errorf("no receiver: %v", no)
		}
	}
}

// TestMessageID checks that a signed id has no dots, which separate the signed parts.
func TestMessageID(t *testing.T) {
	if got := messageID("budget.pay.50"); got != "budget_pay_50" {
		t.Errorf("it is %s", got)
	}
}
