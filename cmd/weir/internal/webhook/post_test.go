package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/ingest/await"
)

// hookAt is a webhook as a configuration has it.
func hookAt(t *testing.T, url string) *config.Webhook {
	t.Helper()
	t.Setenv("HOOK_SECRET", "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g=")
	c, err := config.Parse(fmt.Appendf(nil, "notifications: {webhook: {url: %q, secret: \"${env:HOOK_SECRET}\"}}\n", url), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Notifications.Webhook
}

// TestPost: whatever a receiver does the post ends, says why without the address, and asks nobody else.
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
	client := newClient()
	client.Timeout = 500 * time.Millisecond
	for path, want := range map[string]failure{
		"/taken/swordfish": {}, "/endless/swordfish": {}, "/redirect/swordfish": {status: 307}, "/hang/swordfish": {}, "/cut/swordfish": {},
		"/refuse/swordfish": {status: 400}, "/later/swordfish": {status: 429, retryAfter: 7 * time.Second},
	} {
		no := await.Result(t, path, func() *failure { return post(t.Context(), client, hookAt(t, receiver.URL+path), "id", []byte("{}")) })
		taken := path == "/taken/swordfish" || path == "/endless/swordfish"
		switch {
		case (no == nil) != taken:
			t.Errorf("%s: %v", path, no)
		case no != nil && (no.status != want.status || no.retryAfter != want.retryAfter || no.refuses() != (want.status == 400)):
			t.Errorf("%s: %+v", path, no)
		case no != nil && (strings.Contains(no.why, "swordfish") || strings.Contains(no.why, receiver.URL)):
			t.Errorf("%s tells %s", path, no.why)
		}
	}
	receiver.CloseClientConnections()
	if no := post(t.Context(), client, hookAt(t, "http://127.0.0.1:1/swordfish"), "id", nil); no == nil || strings.Contains(no.why, "swordfish") {
		t.Errorf("nobody there: %v", no)
	}
}

// TestMessageID: dots part what is signed, so an id has none.
func TestMessageID(t *testing.T) {
	if got := messageID("budget.pay.50"); got != "budget_pay_50" {
		t.Errorf("it is %s", got)
	}
}
