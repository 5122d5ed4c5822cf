package httpintake

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
)

// TestLongNamesAreRefused checks that the door answers 400 to names that no job can have, and searches for nothing.
func TestLongNamesAreRefused(t *testing.T) {
	d := New(Options{
		Find: func(_ context.Context, api, key, job string) (*jobstory.Timeline, error) {
			t.Errorf("a job with %d bytes is looked for under names of %d and %d", len(job), len(api), len(key))
			return &jobstory.Timeline{}, nil
		},
		Result:   func(context.Context, uint64) (*jobstory.KeptResult, error) { return nil, nil }, //nolint:nilnil // there is none
		MaxPosts: 1, MaxBodies: 1, MaxLookups: 1, Log: slog.New(slog.DiscardHandler),
	})
	mux := http.NewServeMux()
	for _, r := range d.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, q *http.Request) { r.Serve(w, q, console.Actor{}) })
	}
	long := strings.Repeat("k", 4000)
	for _, path := range []string{
		"/v1/jobs/a/x?key=" + long, "/v1/jobs/a/x?key=" + strings.Repeat("%21", 1400), "/v1/jobs/" + long + "/x", "/v1/jobs/a/" + long, "/v1/jobs/a.b/x",
		"/v1/jobs/a%0D%0APUB%20x/x",
	} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if answer.Code != http.StatusBadRequest || answer.Body.Len() > 500 {
			t.Errorf("%.60s is answered %d %.500s", path, answer.Code, answer.Body)
		}
	}
}
