package dispatcher

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// crashing returns a worker whose calls crash, because the way to its api's headers leads nowhere.
func crashing(idempotent bool) (*apiWorker, *lane.Job) {
	api := &httpcall.API{
		URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Timeout: time.Second, Retry: httpcall.Retry{Attempts: 9},
		Rule: &ingest.Rule{API: "pay", Methods: []string{"POST"}}, Headers: func() ([]ingest.HeaderField, error) { panic("planted") },
	}
	if idempotent {
		api.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key"}
	}
	w := bareWorker(dispatcherOf(Options{}), "pay")
	j := &lane.Job{
		Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}}, Message: &ingest.Job{API: "pay", Key: "k", ID: "j", Method: "POST"},
		Terms: &lane.Terms{API: api, Call: httpcall.NewClient(api, "", 1, nil)},
	}
	return w, j
}

// TestCrashOfOneCallIsContained checks that a job whose call crashes is judged as one with an unknown outcome, and is
// parked the second time.
func TestCrashOfOneCallIsContained(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		w, job := crashing(idempotent)
		defer job.Terms.Call.Conns.Close()
		const most = 2
		for crashes := 1; crashes <= most; crashes++ {
			r := w.caller.send(t.Context(), job, job.Message, httpcall.Hooks{})
			if !r.Sent || r.Status != 0 || r.Err == nil || !strings.Contains(r.Err.Error(), "planted") || job.Crashes != crashes {
				t.Fatalf("crash %d came to %+v, counted %d", crashes, r, job.Crashes)
			}
			out := job.Crashed(httpcall.Judge(job.Terms.API, r, time.Now()))
			switch {
			case !idempotent && (out.Verdict != httpcall.Dead || out.Reason != deadletter.Unknown):
				t.Errorf("crash %d on an api that is not idempotent came to %+v", crashes, out)
			case idempotent && crashes < most && out.Verdict != httpcall.Again:
				t.Errorf("crash %d came to %+v; want another try", crashes, out)
			case idempotent && crashes == most && (out.Verdict != httpcall.Dead || out.Reason != deadletter.Exhausted):
				t.Errorf("crash %d came to %+v; want it parked", crashes, out)
			}
		}
	}
}

// TestCrashOfReadingIsContained checks that a job that weir crashes over while reading it keeps its id and body for its
// letter.
func TestCrashOfReadingIsContained(t *testing.T) {
	w, job := crashing(true)
	defer job.Terms.Call.Conns.Close()
	job.Part = &lane.Owned{}
	job.Terms.API.Rule = nil // reading goes by it
	e := queue.Entry{Data: []byte("body"), Time: time.Now(), Header: map[string][]string{ingest.HeaderJobID: {"j"}}}
	if _, err := w.caller.read(job, e); err == nil || job.Message.ID != "j" || string(job.Message.Body) != "body" {
		t.Fatalf("reading came to %v, the job to %+v", err, job.Message)
	}
}
