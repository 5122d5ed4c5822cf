package jobs

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestTraceContextIsTold: a producer finds its trace wherever its job is reported: in the result, the records of calls,
// the letter and its notice, the event, the lines of the log, and the exemplars of the histograms. Its header is
// spelled as Go's propagators spell it.
func TestTraceContextIsTold(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"done": {"status=503"}, "no": {"status=400"}})
	r := &weirtest.Rig{T: t, API: api, Dir: t.TempDir(), Said: &program.Book{}, YAML: "apis:\n  pay:\n    url: " + api.URL() + "\n    bucket: {rate: 100/s, capacity: 9}\n    retry: {min: 1ms, max: 2ms}\n" +
		"    keys: {full: {rate: 1/h, capacity: 1}}\n"}
	r.Start()
	t.Cleanup(r.Stop)
	notices, err := r.NC.SubscribeSync("_INBOX.ends")
	if err != nil {
		t.Fatal(err)
	}
	events, err := r.NC.SubscribeSync("weir.events.*.pay.*")
	if err != nil {
		t.Fatal(err)
	}
	header := func(id, path string) map[string]string {
		return map[string]string{
			"Nats-Msg-Id": id, "Weir-Path": path, "Traceparent": web.SomeParent, "Tracestate": "vendor=1", "Weir-Reply-To": "_INBOX.ends",
		}
	}
	r.Producer().Submit("weir.jobs.pay.done", nil, header("job-done", "/done"))
	r.Store().Ended("pay", "done", 1)
	r.Producer().Submit("weir.jobs.pay.no", nil, header("job-no", "/no"))
	r.Store().Ended("pay", "no", 1)
	r.Producer().Submit("weir.jobs.pay.full", nil, map[string]string{"Weir-Path": "/full"})
	r.Store().Ended("pay", "full", 1)
	r.Producer().Submit("weir.jobs.pay.full", nil, map[string]string{"Weir-Path": "/full"}) // waits for an hour
	r.Producer().Submit("weir.jobs.pay.full", nil, header("job-full", "/full"))

	has := func(what string, h nats.Header) {
		t.Helper()
		if got := ingest.TraceOf(h); got != (ingest.Trace{Parent: web.SomeParent, State: "vendor=1"}) {
			t.Errorf("%s tells %+v: %v", what, got, h)
		}
	}
	has("the result", r.Store().Results("pay", "done")[0].Header)
	for _, key := range []string{"no", "full"} {
		has("the letter of "+key, r.Store().Letters("pay", key)[0].Header)
	}
	records := append(r.Store().Ledger("pay", "done"), r.Store().Ledger("pay", "no")...)
	if len(records) != 3 {
		t.Errorf("%d records of 3 calls", len(records))
	}
	for _, c := range records {
		if c.Trace != web.SomeParent {
			t.Errorf("the record of call %d of %s tells %q", c.Call, c.Job, c.Trace)
		}
	}
	for range 3 {
		msg, err := notices.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		has("the message at the job's end", msg.Header)
	}
	told := map[string]bool{}
	for len(told) < 2 {
		msg, err := events.NextMsg(weirtest.Patience)
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
		if told[e.Data.Job] = true; e.Data.Job != "" && e.Trace != web.SomeParent {
			t.Errorf("an event tells nothing of the trace: %s", msg.Data)
		}
		delete(told, "") // of a hold
	}
	r.Eventually("a line on the letter", func() bool { return strings.Contains(r.Said.String(), "job buried") })
	for line := range strings.Lines(r.Said.String()) {
		if strings.Contains(line, "job_id=job-") && !strings.Contains(line, "trace_id="+web.SomeTrace) {
			t.Errorf("a line of the log has no trace id: %s", line)
		}
	}
	r.HTTP().CheckExemplars()
}

// TestRefusedAgainInAnotherSpan: a job that is refused repeatedly leaves one letter, although its producer submits it
// in a new span each time.
func TestRefusedAgainInAnotherSpan(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, "apis:\n  pay:\n    url: "+api.URL()+"\n    bucket: {rate: 1/h, capacity: 1}\n")
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.Store().Ended("pay", "k", 1)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	for _, span := range []string{"1", "2", "3"} {
		a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": "a", "Traceparent": "00-" + web.SomeTrace + "-b7ad6b716920333" + span + "-01"})
		if a.Error == nil || a.Error.Code != 429 {
			t.Fatalf("answered %+v", a)
		}
	}
	if n := len(r.Store().Letters("pay", "k")); n != 1 {
		t.Errorf("%d letters of one job", n)
	}
}
