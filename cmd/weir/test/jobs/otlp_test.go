package jobs

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver takes spans as an OpenTelemetry collector does.
type receiver struct {
	t      *testing.T
	server *httptest.Server
	hang   bool // it never answers

	mu      sync.Mutex
	spans   []*tracepb.Span
	bodies  bytes.Buffer // all that came
	headers []http.Header
	of      []string // service.name and service.instance.id of each resource
}

func startReceiver(t *testing.T, hang bool) *receiver {
	t.Helper()
	r := &receiver{t: t, hang: hang}
	done := make(chan struct{})
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.hang {
			select {
			case <-q.Context().Done():
			case <-done:
			}
			return
		}
		r.take(q)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(func() { close(done); r.server.CloseClientConnections(); r.server.Close() })
	return r
}

func (r *receiver) take(q *http.Request) {
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			r.t.Error(err)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var sent tracepb.TracesData
	if err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(data, &sent) != nil {
		r.t.Errorf("%s %s: %v, %d bytes that are no spans", q.Method, q.URL, err, len(data))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, q.Header)
	r.bodies.Write(data)
	for _, resource := range sent.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" || a.Key == "service.instance.id" {
				r.of = append(r.of, a.Value.GetStringValue())
			}
		}
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
}

// span is a span as a test looks at it.
type span struct {
	*tracepb.Span
	trace, id, parent string
	attr              map[string]string
}

// got are the spans that have come, by their name without the api, of one job.
func (r *receiver) got(job string) map[string][]span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, of := map[string][]span{}, map[string]bool{}
	look := func(want func(span) bool) {
		for _, s := range r.spans {
			one := span{Span: s, trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId), attr: map[string]string{}}
			for _, a := range s.Attributes {
				switch v := a.Value.Value.(type) {
				case *commonpb.AnyValue_IntValue:
					one.attr[a.Key] = strconv.FormatInt(v.IntValue, 10)
				case *commonpb.AnyValue_BoolValue:
					one.attr[a.Key] = strconv.FormatBool(v.BoolValue)
				default:
					one.attr[a.Key] = a.Value.GetStringValue()
				}
			}
			if want(one) {
				name, _, _ := strings.Cut(s.Name, " ")
				all[name] = append(all[name], one)
				of[one.id] = true
			}
		}
	}
	look(func(s span) bool { return s.attr["messaging.message.id"] == job })
	above := map[string]bool{}
	for _, s := range all["process"] {
		above[s.id] = true
	}
	look(func(s span) bool { return above[s.parent] && s.attr["messaging.message.id"] == "" })
	return all
}

func (r *receiver) await(job string, whole func(map[string][]span) bool) map[string][]span {
	r.t.Helper()
	ctx := await.Context(r.t, "the spans of "+job)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if all := r.got(job); whole(all) {
			return all
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for name, spans := range r.got(job) {
				r.t.Logf("%s: %v", name, spans)
			}
			r.t.Fatalf("the spans of %s did not come", job)
		}
	}
}

// tracedRig is a weir in a process of its own that sends traces, with a secret wherever one may be: in the address, in headers, in jobs and
// in answers. Orders say by key what the api does with each call; a call of the key "hangs" ends only with weir.
func tracedRig(t *testing.T, to *receiver, yaml string, orders map[string][]string, env ...string) *weirtest.KillRig {
	t.Helper()
	o := fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Traceparent"},
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			of := orders[q.Key]
			if q.KeyCall > int64(len(of)) {
				return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: "swordfish"}
			}
			b, err := fakeapi.ParseBehaviour(of[q.KeyCall-1])
			if err != nil {
				t.Error(err)
			}
			return b
		},
	}
	return weirtest.NewKillRig(t, o, "apis:\n  pay:\n    url: %s/swordfish\n    headers: {X-Secret: \"${env:SECRET}\"}\n"+yaml, append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.server.URL, "OTEL_EXPORTER_OTLP_HEADERS=api-key=swordfish", "OTEL_BSP_SCHEDULE_DELAY=50", "SECRET=swordfish",
	}, env...)...)
}

// TestTracesTellAJobsWay sends the spans of jobs that end in every way to a real receiver: one trace from the producer to the api, with
// each wait, each call and each settling, the refusal and the letter with its cause; over a kill -9 as well. No secret is in them.
func TestTracesTellAJobsWay(t *testing.T) {
	t.Parallel()
	to := startReceiver(t, false)
	r := tracedRig(t, to, `
    forward_headers: [traceparent]
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 9}
    keys: {full: {rate: 1/h, capacity: 1}}
    retry: {min: 1ms, max: 5ms}
`, map[string][]string{
		"done": {"status=500;text=swordfish", "status=429"}, "no": {"status=400;text=swordfish"}, "hangs": {"hang"},
	}, "OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test", "WEIR_INSTANCE=replica-1")
	traced := nats.Header{"traceparent": {web.SomeParent}, "tracestate": {"vendor=1"}}
	r.Hand("done", "job-done", traced)
	r.Hand("no", "job-no", traced)
	r.Hand("plain", "job-plain", nil)
	r.Hand("off", "job-off", nats.Header{"traceparent": {strings.TrimSuffix(web.SomeParent, "01") + "00"}})
	r.Hand("said", "job-said", nats.Header{"traceparent": {web.SomeParent}, "Weir-Header-Traceparent": {strings.Replace(web.SomeParent, "b7ad", "aaaa", 1)}})
	r.Hand("full", "job-first", nil)
	r.AwaitEmpty()
	r.Hand("full", "job-second", nil) // waits for an hour
	if code := r.Hand("full", "job-full", traced); code != 429 {
		t.Fatalf("answered %d", code)
	}
	r.Hand("hangs", "job-hangs", traced)
	await.Until(t, "a call that hangs", func() bool { return len(r.API.Arrivals("hangs")) > 0 })
	// Spans that wait to be sent are lost with the process.
	for _, job := range []string{"job-hangs", "job-full", "job-plain"} {
		to.await(job, func(s map[string][]span) bool { return len(s["accept"]) == 1 })
	}
	for _, job := range []string{"job-done", "job-no", "job-plain"} {
		to.await(job, func(s map[string][]span) bool { return len(s["process"]) == 1 && len(s["accept"]) == 1 })
	}
	r.Proc.Kill()
	r.Start()

	done := to.await("job-done", func(s map[string][]span) bool { return len(s["process"]) == 1 && len(s["accept"]) == 1 })
	checkWay(t, "job-done", done, r.API.Arrivals("done"), "done")
	checkWay(t, "job-no", to.await("job-no", func(s map[string][]span) bool { return len(s["process"]) == 1 }), r.API.Arrivals("no"), "rejected")
	hangs := to.await("job-hangs", func(s map[string][]span) bool { return len(s["process"]) == 1 })
	checkWay(t, "job-hangs", hangs, r.API.Arrivals("hangs"), "done")
	if p := done["process"][0]; p.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR || p.attr["weir.key"] != "done" || p.attr["weir.attempt"] != "2" {
		t.Errorf("a job that is done: %v", p)
	}
	no := to.got("job-no")["process"][0]
	if no.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || no.attr["error.type"] != "rejected" || no.attr["weir.detail"] == "" {
		t.Errorf("a job with a letter does not say why: %v", no)
	}
	full := to.await("job-full", func(s map[string][]span) bool { return len(s["accept"]) == 1 })["accept"][0]
	if full.trace != web.SomeTrace || full.parent != "b7ad6b7169203331" || full.attr["weir.refusal.code"] != "429" || full.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("a refusal: %v", full)
	}
	plain := to.await("job-plain", func(s map[string][]span) bool { return len(s["process"]) == 1 })
	if p := plain["process"][0]; p.parent != "" || p.trace == "" || len(plain["accept"]) != 1 || plain["accept"][0].parent != p.id {
		t.Errorf("a job without a trace has %v", plain)
	}
	if got := r.API.Arrivals("plain")[0].Header("Traceparent"); got != "00-"+plain["POST"][0].trace+"-"+plain["POST"][0].id+"-01" {
		t.Errorf("the api was told %s with a job without a trace", got)
	}
	if all := to.got("job-off"); len(all) != 0 {
		t.Errorf("spans of a job whose producer records nothing: %v", all)
	}
	if got := r.API.Arrivals("off")[0].Header("Traceparent"); got != strings.TrimSuffix(web.SomeParent, "01")+"00" {
		t.Errorf("the api was told %s", got)
	}
	if got := r.API.Arrivals("said")[0].Header("Traceparent"); got != strings.Replace(web.SomeParent, "b7ad", "aaaa", 1) {
		t.Errorf("the job named a traceparent, and the api was told %s", got)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if bytes.Contains(to.bodies.Bytes(), []byte("swordfish")) {
		t.Error("a secret stands in a span")
	}
	if len(to.of) == 0 || to.headers[0].Get("Api-Key") != "swordfish" || !slices.Contains(to.of, "weir") || !slices.Contains(to.of, "replica-1") {
		t.Errorf("sent as %v with %v", to.of, to.headers)
	}
}

// checkWay holds the spans of a job against the calls that the api saw.
func checkWay(t *testing.T, job string, all map[string][]span, calls []fakeapi.Arrival, outcome string) {
	t.Helper()
	p := all["process"][0]
	if p.trace != web.SomeTrace || p.parent != "b7ad6b7169203331" || p.TraceState != "vendor=1" || p.attr["weir.outcome"] != outcome || p.Kind != tracepb.Span_SPAN_KIND_CONSUMER {
		t.Errorf("%s: %v", job, p)
	}
	if len(all["POST"]) != len(calls) || len(all["settle"]) != len(calls) || len(all["wait"]) < len(calls)-1 || len(all["accept"]) != 1 {
		t.Errorf("%s was called %d times, and has %d spans of calls, %d of settling, %d of waiting, %d of the intake", job, len(calls), len(all["POST"]),
			len(all["settle"]), len(all["wait"]), len(all["accept"]))
	}
	told := map[string]bool{}
	for _, c := range calls {
		told[c.Header("Traceparent")] = true
	}
	for name, spans := range all {
		for _, s := range spans {
			if s.trace != web.SomeTrace || name != "process" && s.parent != p.id || s.EndTimeUnixNano < s.StartTimeUnixNano || s.EndTimeUnixNano > p.EndTimeUnixNano {
				t.Errorf("%s: %s is not within the job: %v", job, name, s)
			}
		}
	}
	for _, s := range all["POST"] {
		if s.Kind != tracepb.Span_SPAN_KIND_CLIENT || !told["00-"+s.trace+"-"+s.id+"-01"] {
			t.Errorf("%s: the api was not told of the span of call %s: %v", job, s.attr["weir.call"], told)
		}
		if s.attr["http.request.method"] != "POST" || s.attr["server.address"] != "127.0.0.1" || s.attr["server.port"] == "" || s.attr["url.full"] == "" ||
			s.attr["weir.attempt"] == "" || s.attr["http.response.status_code"] == "" && s.attr["error.type"] != "no_answer" ||
			(s.attr["weir.call"] != "1") != (s.attr["http.request.resend_count"] != "") {
			t.Errorf("%s: the span of a call says %v", job, s.attr)
		}
	}
}

// TestTracesHinderNothing: a receiver that never answers delays no call, and costs no more memory than the bound of
// waiting spans: the rest is dropped and counted. weir still stops in time.
func TestTracesHinderNothing(t *testing.T) {
	t.Parallel()
	const jobs, most = 200, 64
	addr := servers.FreePort(t)
	r := tracedRig(t, startReceiver(t, true), "    bucket: {rate: 1000/s, burst: 200, counts: token_bucket, capacity: 500, in_flight: 50}\n", nil,
		fmt.Sprintf("OTEL_BSP_MAX_QUEUE_SIZE=%d", most), "OTEL_EXPORTER_OTLP_TIMEOUT=300", "WEIR_HTTP_LISTEN="+addr)
	for n := range jobs {
		r.Hand("k", fmt.Sprintf("job-%d", n), nil)
	}
	r.AwaitEmpty()
	if n := len(r.Outcomes()); n != jobs {
		t.Errorf("%d of %d jobs have ended", n, jobs)
	}
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	of := func(outcome string) int {
		_, after, _ := strings.Cut(string(text), `weir_trace_spans_total{outcome="`+outcome+`"} `)
		n, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), 64)
		if err != nil {
			t.Fatalf("outcome %s: %v", outcome, err)
		}
		return int(n)
	}
	const each = 5 // accept, wait, call, settle, process
	if kept := jobs*each - of("dropped") - of("failed"); of("sent") != 0 || kept < 0 || kept > most {
		t.Errorf("of %d spans %d were dropped and %d failed: %d wait, at most %d may", jobs*each, of("dropped"), of("failed"), kept, most)
	}
	if err := r.Proc.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the end of a weir that cannot send its traces", r.Proc.Exited)
	if code := r.Proc.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
