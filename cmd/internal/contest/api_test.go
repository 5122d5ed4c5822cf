package contest

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestJudge checks that a round counts each job once, by its first call, and reports repeated calls. The round fails if
// a job was not called, or if a call arrived that does not belong to the round.
func TestJudge(t *testing.T) {
	server := httptest.NewServer(&api{})
	t.Cleanup(server.Close)
	type call struct {
		path string
		job  int
	}
	for _, c := range []struct {
		name     string
		calls    []call
		repeated int
		refused  string
	}{
		{"each once", []call{{"/of", 1}, {"/of", 0}, {"/of", 2}}, 0, ""},
		{"one twice", []call{{"/of", 1}, {"/of", 1}, {"/of", 0}, {"/of", 2}}, 1, ""},
		{"one missing", []call{{"/of", 1}, {"/of", 0}, {"/of", 0}}, 0, "of 3 jobs 2 were called"},
		{"another path", []call{{"/of", 1}, {"/else", 0}, {"/of", 0}, {"/of", 2}}, 0, "1 calls came that were not of this round"},
		{"another job", []call{{"/of", 3}, {"/of", 1}, {"/of", 0}, {"/of", 2}}, 0, "1 calls came that were not of this round"},
	} {
		within := time.Minute
		if strings.Contains(c.refused, "were called") {
			within = time.Millisecond
		}
		got, err := Judge{URL: server.URL}.Round(t.Context(), "/of", 3, within, func(ctx context.Context) (int64, error) {
			for _, one := range c.calls {
				if err := NewCaller(server.URL+one.path, 1).Call(ctx, Body(one.job, LeastBody)); err != nil {
					return 0, err
				}
			}
			return 7, nil
		})
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.name, err, c.refused)
			}
		case err != nil || got.Called != 3 || got.Repeated != c.repeated || got.Began != 7:
			t.Errorf("%s: %+v, %v", c.name, got, err)
		default:
			if first, last := got.FirstAndLast(); first != got.Times[1] || last != got.Times[2] {
				t.Errorf("%s: the first and the last call were at %d and %d of %v", c.name, first, last, got.Times)
			}
		}
	}
}
