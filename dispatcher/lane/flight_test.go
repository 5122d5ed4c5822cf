package lane

import (
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/recorder"
	"weir/ingest"
)

// TestNotedOperation checks that the address of an operation outlives the process that learned it, even if weir must
// not ask about the operation, since the job's letter has the address.
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

// TestNotedCallTellsItsEstimates checks that a call whose process died after the answer has its job's estimates in its
// record if they were too low, like any other call.
func TestNotedCallTellsItsEstimates(t *testing.T) {
	api := &httpcall.API{Rules: bucket.Rules{Shared: []bucket.Limit{{Name: "tokens", Cost: ingest.Units(4), Rate: &bucket.Rate{}}}}}
	j := &Job{Terms: &Terms{API: api, Limits: 7}, Message: &ingest.Job{}}
	if j.ChargeAgain(&recorder.Answer{Limits: 7, Taken: []int64{9}}); !slices.Equal(j.Bill.Low(), []int64{4}) {
		t.Errorf("the call took %v, and its job was estimated at %v", j.Bill.Taken, j.Bill.Low())
	}
	if j.Charge(); j.Bill.Low() != nil {
		t.Errorf("a call of which nothing is known was estimated at %v", j.Bill.Low())
	}
}
