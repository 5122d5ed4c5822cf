package dispatcher

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"weir/deadletter"
)

func TestJudge(t *testing.T) {
	broke := errors.New("broke")
	type judgement struct {
		name   string
		billed deadletter.Billed
	}
	retried, uncertain := judgement{"retry", "unknown"}, judgement{"unknown", "unknown"}
	for _, c := range []struct {
		what             string
		r                response
		idempotent, once judgement
	}{
		{"200", response{sent: true, status: 200}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"204", response{sent: true, status: 204}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"302", response{sent: true, status: 302}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"429", response{sent: true, status: 429}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"429, cut", response{sent: true, status: 429, cut: true, err: broke}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"503", response{sent: true, status: 503}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"409, listed", response{sent: true, status: 409}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"502, listed", response{sent: true, status: 502}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"400", response{sent: true, status: 400}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"404, cut", response{sent: true, status: 404, cut: true, err: broke}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"499", response{sent: true, status: 499}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"500", response{sent: true, status: 500}, retried, uncertain},
		{"504", response{sent: true, status: 504}, retried, uncertain},
		{"599, cut", response{sent: true, status: 599, cut: true, err: broke}, retried, uncertain},
		{"999", response{sent: true, status: 999}, retried, uncertain},
		{"200, cut", response{sent: true, status: 200, cut: true, err: broke}, judgement{"retry", "yes"}, judgement{"unknown", "yes"}},
		{"no answer", response{sent: true, err: broke}, retried, uncertain},
		{"not sent", response{err: broke}, judgement{"retry", "no"}, judgement{"retry", "no"}},
	} {
		api := &API{Retry: Retry{On: []int{409, 502}}}
		for _, want := range []judgement{c.once, c.idempotent} {
			out := judge(api, c.r, time.Now())
			if got := (judgement{out.name(), out.billed}); got != want {
				t.Errorf("%s, idempotency %v: %v, want %v", c.what, api.Idempotency, got, want)
			}
			if out.detail == "" && out.verdict != delivered {
				t.Errorf("%s: a failure without a word", c.what)
			}
			api.Idempotency = &Idempotency{Header: "Idempotency-Key"}
		}
	}
}

// TestJudgeNeverRepeatsWhatMayHaveBeenDone goes through every status there can be.
func TestJudgeNeverRepeatsWhatMayHaveBeenDone(t *testing.T) {
	api := &API{Retry: Retry{On: []int{429, 503}}}
	for status := range 1000 {
		out := judge(api, response{sent: true, status: status, header: http.Header{}}, time.Now())
		again := out.verdict == retry || out.verdict == pushback
		if again != (status == 429 || status == 503) {
			t.Errorf("status %d would be called again: %v", status, again)
		}
	}
}
