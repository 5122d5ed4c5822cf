package lane

import (
	"slices"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// TestNotedOperation checks that the address of an operation outlives the process that learned it: also that of one which
// weir must not ask about, since the job's letter has it.
func TestNotedOperation(t *testing.T) {
	began := time.Now()
	for _, v := range []httpcall.Verdict{httpcall.Submitted, httpcall.Dead} {
		a := noted(httpcall.Response{Sent: true, Status: 202, Started: began, Body: []byte("1")}, httpcall.Outcome{
			Verdict: v, Reason: deadletter.Unknown, Billed: deadletter.BilledYes,
			Operation: &queue.Operation{Address: "https://other.example.com/1", Cancel: "https://other.example.com/1/cancel", Holds: true},
		})
		out := OutcomeOf(&a)
		if op := out.Operation; out.Verdict != v || op == nil || op.Address != "https://other.example.com/1" || op.Cancel == "" || !op.Holds || !op.Started.Equal(began) {
			t.Errorf("%d is restored as %+v, %+v", v, out, op)
		}
		if kept := slices.Equal(a.Body, []byte("1")); kept != (v == httpcall.Dead) {
			t.Errorf("%d: the noted body is %q", v, a.Body)
		}
	}
	if a := noted(httpcall.Response{}, httpcall.Outcome{Verdict: httpcall.Delivered}); OutcomeOf(&a).Operation != nil {
		t.Error("a call that began no operation has one")
	}
}
