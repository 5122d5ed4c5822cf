package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

const (
	someTrace  = "0af7651916cd43dd8448eb211c80319c"
	someParent = "00-" + someTrace + "-b7ad6b7169203331-01"
)

// TestTraceContextIsTold: a producer finds its trace in all that is told of its job: the result, the records of calls, the letter and its
// notice, the event, the lines of the log, and behind the histograms. Its header is spelled as Go's propagators spell it.
func TestTraceContextIsTold(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, map[string][]string{"done": {"status=503"}, "no": {"status=400"}})
	r := &rig{t: t, api: api, dir: t.TempDir(), said: &book{}, yaml: "apis:\n  pay:\n    url: " + api.URL() + "\n    bucket: {rate: 100/s, capacity: 9}\n    retry: {min: 1ms, max: 2ms}\n" +
		"    keys: {full: {rate: 1/h, capacity: 1}}\n"}
	r.start()
	t.Cleanup(r.stop)
	notices, err := r.nc.SubscribeSync("_INBOX.ends")
	if err != nil {
		t.Fatal(err)
	}
	events, err := r.nc.SubscribeSync("weir.events.*.pay.*")
	if err != nil {
		t.Fatal(err)
	}
	header := func(id, path string) map[string]string {
		return map[string]string{
			"Nats-Msg-Id": id, "Weir-Path": path, "Traceparent": someParent, "Tracestate": "vendor=1", "Weir-Reply-To": "_INBOX.ends",
		}
	}
	r.submit("weir.jobs.pay.done", nil, header("job-done", "/done"))
	r.ended("pay", "done", 1)
	r.submit("weir.jobs.pay.no", nil, header("job-no", "/no"))
	r.ended("pay", "no", 1)
	r.submit("weir.jobs.pay.full", nil, map[string]string{"Weir-Path": "/full"})
	r.ended("pay", "full", 1)
	r.submit("weir.jobs.pay.full", nil, map[string]string{"Weir-Path": "/full"}) // waits for an hour
	r.submit("weir.jobs.pay.full", nil, header("job-full", "/full"))

	has := func(what string, h nats.Header) {
		t.Helper()
		if got := ingest.TraceOf(h); got != (ingest.Trace{Parent: someParent, State: "vendor=1"}) {
			t.Errorf("%s tells %+v: %v", what, got, h)
		}
	}
	has("the result", r.results("pay", "done")[0].Header)
	for _, key := range []string{"no", "full"} {
		has("the letter of "+key, r.letters("pay", key)[0].Header)
	}
	records := append(r.ledger("pay", "done"), r.ledger("pay", "no")...)
	if len(records) != 3 {
		t.Errorf("%d records of 3 calls", len(records))
	}
	for _, c := range records {
		if c.Trace != someParent {
			t.Errorf("the record of call %d of %s tells %q", c.Call, c.Job, c.Trace)
		}
	}
	for range 3 {
		msg, err := notices.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		has("the message at the job's end", msg.Header)
	}
	told := map[string]bool{}
	for len(told) < 2 {
		msg, err := events.NextMsg(patience)
		if err != nil {
			t.Fatalf("events told only of %v: %v", told, err)
		}
		var e struct {
			Trace string               `json:"traceparent"`
			Data  struct{ Job string } `json:"data"`
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			t.Fatal(err)
		}
		if told[e.Data.Job] = true; e.Data.Job != "" && e.Trace != someParent {
			t.Errorf("an event tells nothing of the trace: %s", msg.Data)
		}
		delete(told, "") // of a hold
	}
	r.eventually("a line on the letter", func() bool { return strings.Contains(r.said.String(), "job buried") })
	for line := range strings.Lines(r.said.String()) {
		if strings.Contains(line, "job_id=job-") && !strings.Contains(line, "trace_id="+someTrace) {
			t.Errorf("a line of the log has no trace id: %s", line)
		}
	}
	r.checkExemplars()
}

// checkExemplars asks for the metrics as Prometheus does that keeps exemplars.
func (r *rig) checkExemplars() {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.worker.HTTPAddr()+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	text := r.read(req)
	for _, name := range []string{"weir_queue_wait_seconds", "weir_call_duration_seconds", "weir_dispatch_late_seconds"} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, name+`_bucket{api="pay"`) && strings.Contains(line, `# {trace_id="`+someTrace+`"}`)
		}
		if !found {
			r.t.Errorf("no exemplar leads from %s to the trace", name)
		}
	}
}

// TestRefusedAgainInAnotherSpan: producers that try again at once have a new span for each try, and still leave one letter for a job.
func TestRefusedAgainInAnotherSpan(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, nil)
	r := rigOn(t, api, "apis:\n  pay:\n    url: "+api.URL()+"\n    bucket: {rate: 1/h, capacity: 1}\n")
	r.submit("weir.jobs.pay.k", nil, nil)
	r.ended("pay", "k", 1)
	r.submit("weir.jobs.pay.k", nil, nil)
	for _, span := range []string{"1", "2", "3"} {
		a := r.submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": "a", "Traceparent": "00-" + someTrace + "-b7ad6b716920333" + span + "-01"})
		if a.Error == nil || a.Error.Code != 429 {
			t.Fatalf("answered %+v", a)
		}
	}
	if n := len(r.letters("pay", "k")); n != 1 {
		t.Errorf("%d letters of one job", n)
	}
}
