package jobs

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go/jetstream"
)

// newRigOf starts a worker that calls another api than the rig's: one with answers that a fake api does not give. yaml
// gets its url for its %s.
func newRigOf(t *testing.T, answer http.HandlerFunc, yaml string) *weirtest.Rig {
	t.Helper()
	api := httptest.NewServer(answer)
	t.Cleanup(api.Close)
	return weirtest.NewRig(t, fakeapi.Options{}, fmt.Sprintf(yaml, api.URL)+"# %s\n")
}

// TestAnswersThatCannotBeKept: an answer whose headers or body the stream cannot store still has a result, and does not
// keep other clients' jobs from being called.
func TestAnswersThatCannotBeKept(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := newRigOf(t, func(w http.ResponseWriter, req *http.Request) {
		calls.Add(1)
		if strings.HasSuffix(req.URL.Path, "/type") {
			w.Header().Set("Content-Type", "text/plain; x="+strings.Repeat("x", 66<<10))
		}
		_, _ = io.WriteString(w, strings.Repeat("b", 60<<10))
	}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 10, in_flight: 1}\n")
	s, err := r.JS.Stream(t.Context(), "WEIR_RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/type", "/body"} {
		if path == "/body" {
			cfg := s.CachedInfo().Config
			cfg.MaxMsgSize = 8 << 10
			if _, err := r.Operators().UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Weir-Path": path, "Nats-Msg-Id": path[1:]}); a.Error != nil {
			t.Fatal(a.Error.Description)
		}
		var msg *jetstream.RawStreamMsg
		r.Eventually("a result of "+path, func() bool {
			msg, err = s.GetLastMsgForSubject(t.Context(), "weir.results.pay.k")
			return err == nil && msg.Header.Get("Weir-Job-Id") == path[1:]
		})
		cut := msg.Header.Get("Weir-Body")
		switch {
		case path == "/type" && (cut != "" || len(msg.Data) != 60<<10 || !strings.HasPrefix(msg.Header.Get("Content-Type"), "text/plain; x=xx")):
			t.Errorf("%s: %d bytes, Weir-Body %q, Content-Type %.40q", path, len(msg.Data), cut, msg.Header.Get("Content-Type"))
		case path == "/body" && (cut != "cut" || len(msg.Data) == 0 || len(msg.Data) > 8<<10):
			t.Errorf("%s: %d bytes, Weir-Body %q", path, len(msg.Data), cut)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls of 2 jobs", n)
	}
}

// TestSettlementReadsTheWholeAnswer: an api may report what a call used at the end of a long answer, of which weir
// stores little or nothing.
func TestSettlementReadsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	for _, kept := range []string{"64KiB", "0B"} {
		t.Run(kept, func(t *testing.T) {
			var calls atomic.Int32
			r := newRigOf(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				_, _ = fmt.Fprintf(w, `{"text":%q,"usage":{"total":400}}`, strings.Repeat("x", 70<<10))
			}, `
apis:
  llm:
    url: %s
    bucket: {rate: 100/s, capacity: 10, in_flight: 1}
    limits: [{name: tokens, quota: 1000/day, tz: `+machine.Noon()+`, cost: {from: 1, settle: json:/usage/total}}]
results: {max_body: `+kept+"}\n")
			r.Producer().SubmitMany("llm", "k", 6)
			r.Eventually("two calls, and results of them", func() bool {
				return calls.Load() >= 2 && r.Store().Messages("WEIR_RESULTS") >= 2
			})
			r.Eventually("the units of two calls to be counted", func() bool {
				levels := r.Worker.Parts().Levels.Of("llm")
				return calls.Load() > 2 || len(levels) == 1 && levels[0].Used >= 800
			})
			// The first answer proves the estimate too low, so a third call would reserve 400.
			if n := calls.Load(); n != 2 {
				t.Errorf("%d calls of 400 units each, of a quota of 1000", n)
			}
		})
	}
}
