package ingest_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
	"weir/ingest"
)

const someParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTraceContextIsRead checks that a traceparent and its tracestate are read by W3C's rules. An invalid one is
// ignored, and the job is not refused for it.
func TestTraceContextIsRead(t *testing.T) {
	for _, c := range []struct {
		header nats.Header
		want   ingest.Trace
	}{
		{nats.Header{"traceparent": {someParent}}, ingest.Trace{Parent: someParent}},
		{nats.Header{"Traceparent": {someParent}, "Tracestate": {"a=1", "b=2"}}, ingest.Trace{Parent: someParent, State: "a=1,b=2"}},
		{nats.Header{"TRACEPARENT": {someParent}}, ingest.Trace{Parent: someParent}},
		{nats.Header{"traceparent": {strings.Replace(someParent, "00-", "01-", 1) + "-more"}}, ingest.Trace{Parent: strings.Replace(someParent, "00-", "01-", 1) + "-more"}},
		{nats.Header{"traceparent": {someParent}, "tracestate": {strings.Repeat("a", 513)}}, ingest.Trace{Parent: someParent}},
		{nats.Header{"tracestate": {"a=1"}}, ingest.Trace{}},
		{nats.Header{"traceparent": {someParent + "-more"}}, ingest.Trace{}},
		{nats.Header{"traceparent": {strings.ToUpper(someParent)}}, ingest.Trace{}},
		{nats.Header{"traceparent": {strings.Replace(someParent, "00-", "ff-", 1)}}, ingest.Trace{}},
		{nats.Header{"traceparent": {"00-00000000000000000000000000000000-b7ad6b7169203331-01"}}, ingest.Trace{}},
		{nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}}, ingest.Trace{}},
		{nats.Header{"traceparent": {"00-1"}}, ingest.Trace{}},
		{nats.Header{"traceparent": {""}}, ingest.Trace{}},
		{nats.Header{}, ingest.Trace{}},
		{nats.Header{"Baggage": {"user=7", "plan=a%20b"}}, ingest.Trace{Baggage: "user=7,plan=a%20b"}},
		{nats.Header{"baggage": {"user=7"}, "traceparent": {someParent}}, ingest.Trace{Parent: someParent, Baggage: "user=7"}},
		{nats.Header{"baggage": {strings.Repeat("a", 8193)}, "traceparent": {someParent}}, ingest.Trace{Parent: someParent}},
	} {
		if got := ingest.TraceOf(c.header); got != c.want {
			t.Errorf("%v is %+v", c.header, got)
		}
		if j, refusal := parse(c.header, plainRule); refusal != nil || j.Trace != c.want {
			t.Errorf("a job with %v has %+v, %v", c.header, j.Trace, refusal)
		}
	}
	one := ingest.Trace{Parent: someParent}
	if one.ID() != "0af7651916cd43dd8448eb211c80319c" || !one.Sampled() {
		t.Errorf("id %s, sampled %t", one.ID(), one.Sampled())
	}
	for flags, want := range map[string]bool{"00": false, "02": false, "03": true, "ff": true} {
		if tr := (ingest.Trace{Parent: strings.TrimSuffix(someParent, "01") + flags}); tr.Sampled() != want {
			t.Errorf("flags %s: sampled %t", flags, tr.Sampled())
		}
	}
	if none := (ingest.Trace{}); none.ID() != "" || none.Sampled() {
		t.Error("no trace has an id")
	}
}

// TestTraceContextIsAlwaysWhole checks that any text is read as a trace context that is valid to forward, or as none.
func TestTraceContextIsAlwaysWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?`))
		got := ingest.TraceOf(nats.Header{"traceparent": {text.Draw(t, "parent")}, "tracestate": {text.Draw(t, "state")}})
		if got.Parent == "" {
			if got != (ingest.Trace{}) {
				t.Fatalf("a state without a parent: %+v", got)
			}
			return
		}
		if len(got.ID()) != 32 || strings.ContainsAny(got.Parent+got.State, "\r\n\x00") || len(got.Parent) > 512 || len(got.State) > 512 {
			t.Fatalf("read %q %q", got.Parent, got.State)
		}
	})
}

// TestBaggageIsHandedOn checks that results and notices carry the job's baggage beside its trace context.
func TestBaggageIsHandedOn(t *testing.T) {
	h := nats.Header{}
	ingest.TraceOf(nats.Header{"Baggage": {"user=7"}}).AddTo(h)
	if len(h) != 1 || h.Get("baggage") != "user=7" {
		t.Errorf("%v", h)
	}
}
