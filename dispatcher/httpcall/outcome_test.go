package httpcall

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	denial := judgement{"denied", "no"}
	retried, uncertain := judgement{"retry", "unknown"}, judgement{"unknown", "unknown"}
	for _, c := range []struct {
		what             string
		r                Response
		idempotent, once judgement
	}{
		{"200", Response{Sent: true, Status: 200}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"204", Response{Sent: true, Status: 204}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"303", Response{Sent: true, Status: 303}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"304", Response{Sent: true, Status: 304}, judgement{"done", "yes"}, judgement{"done", "yes"}},
		{"302", Response{Sent: true, Status: 302}, denial, denial},
		{"307, cut", Response{Sent: true, Status: 307, Cut: true, Err: broke}, denial, denial},
		{"399, which nobody knows", Response{Sent: true, Status: 399}, denial, denial},
		{"401", Response{Sent: true, Status: 401}, denial, denial},
		{"401, cut", Response{Sent: true, Status: 401, Cut: true, Err: broke}, denial, denial},
		{"403, of the job", Response{Sent: true, Status: 403}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"301, of the job", Response{Sent: true, Status: 301}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"429", Response{Sent: true, Status: 429}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"429, cut", Response{Sent: true, Status: 429, Cut: true, Err: broke}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"503", Response{Sent: true, Status: 503}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"409, listed", Response{Sent: true, Status: 409}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"502, listed", Response{Sent: true, Status: 502}, judgement{"pushback", "no"}, judgement{"pushback", "no"}},
		{"400", Response{Sent: true, Status: 400}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"404, cut", Response{Sent: true, Status: 404, Cut: true, Err: broke}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"408, of a gateway", Response{Sent: true, Status: 408}, retried, uncertain},
		{"408, cut", Response{Sent: true, Status: 408, Cut: true, Err: broke}, retried, uncertain},
		{"499, of a gateway", Response{Sent: true, Status: 499}, retried, uncertain},
		{"498", Response{Sent: true, Status: 498}, judgement{"rejected", "no"}, judgement{"rejected", "no"}},
		{"500", Response{Sent: true, Status: 500}, retried, uncertain},
		{"504", Response{Sent: true, Status: 504}, retried, uncertain},
		{"599, cut", Response{Sent: true, Status: 599, Cut: true, Err: broke}, retried, uncertain},
		{"999", Response{Sent: true, Status: 999}, retried, uncertain},
		{"200, cut", Response{Sent: true, Status: 200, Cut: true, Err: broke}, judgement{"retry", "yes"}, judgement{"unknown", "yes"}},
		{"no answer", Response{Sent: true, Err: broke}, retried, uncertain},
		{"not sent, for want of a secret", Response{Err: fmt.Errorf("%w: %w", errNoRequest, errNoHeaders)}, denial, denial},
		{"not sent", Response{Err: broke}, judgement{"retry", "no"}, judgement{"retry", "no"}},
	} {
		api := &API{Retry: Retry{On: []int{409, 502}, Reject: []int{403, 301}}}
		for _, want := range []judgement{c.once, c.idempotent} {
			out := Judge(api, c.r, time.Now())
			if got := (judgement{out.Name(), out.Billed}); got != want {
				t.Errorf("%s, idempotency %v: %v, want %v", c.what, api.Idempotency, got, want)
			}
			if out.Detail == "" && out.Verdict != Delivered {
				t.Errorf("%s: a failure without a word", c.what)
			}
			api.Idempotency = &Idempotency{Header: "Idempotency-Key"}
		}
	}
}

// TestGatewayThatGaveUpAsConfigured checks that the configuration may say what a gateway's 408 means.
func TestGatewayThatGaveUpAsConfigured(t *testing.T) {
	for _, status := range []int{408, 499} {
		for want, retry := range map[string]Retry{"pushback": {On: []int{status}}, "rejected": {Reject: []int{status}}} {
			if got := Judge(&API{Retry: retry}, Response{Sent: true, Status: status}, time.Now()).Name(); got != want {
				t.Errorf("%d with %+v: %s, want %s", status, retry, got, want)
			}
		}
	}
}

// TestJudgeNeverRepeatsWhatMayHaveBeenDone tries every possible status.
func TestJudgeNeverRepeatsWhatMayHaveBeenDone(t *testing.T) {
	api := &API{Retry: Retry{On: []int{429, 503}}}
	for status := range 1000 {
		out := Judge(api, Response{Sent: true, Status: status, Header: http.Header{}}, time.Now())
		again := out.Verdict == Again || out.Verdict == Pushback || out.Verdict == Denied
		notDone := slices.Contains([]int{401, 402, 403, 407, 429, 503}, status) || status >= 300 && status < 400 && status != 303 && status != 304
		if again != notDone {
			t.Errorf("status %d would be called again: %v", status, again)
		}
	}
}
