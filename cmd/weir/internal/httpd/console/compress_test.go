package console

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLargeAnswersAreCompressed checks that large answers are compressed for clients that accept gzip, and only for
// those. Small answers are not compressed.
func TestLargeAnswersAreCompressed(t *testing.T) {
	for _, c := range []struct {
		accepts string
		bytes   int
		want    string
	}{
		{"gzip, deflate, br", 5000, "gzip"}, {"br;q=1.0, gzip;q=0.8", 5000, "gzip"}, {"gzip", 500, ""}, {"", 5000, ""}, {"gzip;q=0", 5000, ""}, {"identity", 5000, ""},
	} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", c.accepts)
		WriteJSON(accepting(w, r), 200, strings.Repeat("x", c.bytes))
		if got := w.Result().Header.Get("Content-Encoding"); got != c.want || (w.Body.Len() < c.bytes) != (c.want != "") {
			t.Errorf("%q, %d bytes: %q in %d bytes", c.accepts, c.bytes, got, w.Body.Len())
		}
	}
}

// TestPagesThatAreNot checks the answers for unknown addresses: a browser gets the console's page, and other clients
// get a problem. /config redirects to the page of the configuration.
func TestPagesThatAreNot(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	browser := map[string]string{"Accept": "text/html,*/*;q=0.8"}
	if res, body := ask(t, s, request{path: "/nothing", header: browser}); res.StatusCode != 404 || !strings.Contains(body, "/console/app.js") || res.Header.Get("Content-Security-Policy") != pagePolicy {
		t.Errorf("a browser is answered %d: %s", res.StatusCode, body)
	}
	for _, q := range []request{{path: "/nothing"}, {path: "/api/v1/nothing", header: browser}, {path: "/console/none.js", header: browser}} {
		if res, body := ask(t, s, q); res.StatusCode != 404 || !strings.Contains(body, `"detail"`) {
			t.Errorf("%s is answered %d: %s", q.path, res.StatusCode, body)
		}
	}
	if res, body := ask(t, s, request{path: "/config", header: browser}); res.StatusCode != 200 || res.Request.URL.Path != "/configuration" {
		t.Errorf("/config leads to %s, %d: %s", res.Request.URL, res.StatusCode, body)
	}
}
