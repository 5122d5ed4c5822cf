package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLongNamesAreRefused checks that no request can name something too long for a subject. If a control line exceeded
// its bound, the server would close weir's connection for good.
func TestLongNamesAreRefused(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: connect.ControlBucket}); err != nil {
		t.Fatal(err)
	}
	a := askedAPI(t, js)
	inPath := regexp.MustCompile(`{\w+}`)
	asked := 0
	for _, r := range a.table() {
		if r.method != http.MethodGet || r.serve == nil {
			continue
		}
		for name, long := range map[string]string{"plain": strings.Repeat("a", 5000), "escaped": strings.Repeat("!", 1400)} {
			var paths []string
			if inPath.MatchString(r.path) {
				paths = append(paths, inPath.ReplaceAllString(r.path, url.PathEscape(long)))
			}
			for _, p := range r.query {
				if p.name == "api" || p.name == "key" {
					q := url.Values{p.name: {long}}
					if p.name == "key" && !strings.Contains(r.path, "{") {
						q.Set("api", "a")
					}
					paths = append(paths, inPath.ReplaceAllString(r.path, "1")+"?"+q.Encode())
				}
			}
			for _, path := range paths {
				asked++
				answer := httptest.NewRecorder()
				mux := http.NewServeMux()
				mux.HandleFunc(r.method+" "+base+r.path, func(w http.ResponseWriter, q *http.Request) { r.reply(w, q, console.Actor{Role: console.Viewer}) })
				mux.ServeHTTP(answer, httptest.NewRequestWithContext(await.Context(t, path), r.method, base+path, nil))
				if answer.Code != http.StatusBadRequest && answer.Code != http.StatusNotFound {
					t.Errorf("%s with a %s name of %d bytes is answered %d %.300s", r.path, name, len(long), answer.Code, answer.Body)
				}
			}
		}
	}
	if asked < 40 {
		t.Errorf("only %d questions were asked", asked)
	}
	if err := js.Conn().FlushTimeout(connect.Timeout); err != nil {
		t.Errorf("the connection to the server: %v", err)
	}
}
