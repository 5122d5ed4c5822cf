package ingest_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// plainRule is the rule of an api that allows everything a job may use.
var plainRule = ingest.Rule{
	API: "credit", Methods: []string{"POST", "PUT", "DELETE"}, ForwardHeaders: []string{"Content-Type", "X-Source"},
	MaxBody: 64, ReplyTo: ingest.ReplySubjects{Open: []string{"_INBOX.>", "mine", "weird.>"}}, Costs: []ingest.CostBound{{Limit: "tokens", From: ingest.FromHeader("Weir-Cost"), Most: 4000}},
}

var someNow = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func parse(h nats.Header, rule ingest.Rule) (*ingest.Job, *ingest.Refusal) {
	return ingest.Parse(ingest.Message{Key: "vip-1", Header: h, Body: []byte("{}")}, &rule, someNow)
}

// TestTraceContextForwarded checks that an api whose rule names the trace context gets each of its headers once, even
// if the job has it in two spellings. Another api gets none.
func TestTraceContextForwarded(t *testing.T) {
	rule := plainRule
	rule.ForwardHeaders = []string{"Traceparent", "tracestate"}
	for _, h := range []nats.Header{
		{"traceparent": {"00-1"}, "tracestate": {"a=1"}},
		{"Traceparent": {"00-1"}, "tracestate": {"a=1"}, "Weir-Header-Traceparent": {"00-1"}},
		{"TraceParent": {"00-1"}, "tracestate": {"a=1"}, "Weir-Header-Tracestate": {"a=1"}},
	} {
		j, refusal := parse(h, rule)
		if refusal != nil || len(j.Forward) != 2 {
			t.Fatalf("%v: forwarded %v, refusal %v", h, j.Forward, refusal)
		}
		for _, f := range j.Forward {
			if want := map[string]string{"Traceparent": "00-1", "Tracestate": "a=1"}[f.Name]; f.Value != want {
				t.Errorf("%v: forwarded %v", h, f)
			}
		}
		if j, _ := parse(nats.Header{"traceparent": {"00-1"}}, plainRule); len(j.Forward) != 0 {
			t.Errorf("forwarded although the api does not name it: %v", j.Forward)
		}
	}
}

// TestHeaderTaken checks what each valid header of the contract changes in the job.
func TestHeaderTaken(t *testing.T) {
	type job = ingest.Job
	long := "/" + strings.Repeat("a", 4095)
	for _, c := range []struct {
		name, value string
		want        func(*job) bool
	}{
		{"Nats-Msg-Id", "order-1", func(j *job) bool { return j.ID == "order-1" && j.DedupeID == "order-1" }},
		{"nats-msg-id", "order-1", func(j *job) bool { return j.ID == "order-1" && j.DedupeID == "order-1" }},
		{"Weir-Job-Id", "order-1", func(j *job) bool { return j.ID == "order-1" && j.DedupeID == "order-1" }},
		{"Weir-Job-Id", strings.Repeat("i", 255), func(j *job) bool { return len(j.ID) == 255 }},
		{"Weir-Method", "PUT", func(j *job) bool { return j.Method == "PUT" }},
		{"weir-method", "DELETE", func(j *job) bool { return j.Method == "DELETE" }},
		{"Weir-Path", "", func(j *job) bool { return j.Path == "" }},
		{"Weir-Path", "/", func(j *job) bool { return j.Path == "/" }},
		{"Weir-Path", "/a/b%20c/..d/e../.f/@:", func(j *job) bool { return j.Path == "/a/b%20c/..d/e../.f/@:" }},
		{"Weir-Path", "/a%2Fb%e9", func(j *job) bool { return j.Path == "/a%2Fb%e9" }},
		{"Weir-Path", long, func(j *job) bool { return j.Path == long }},
		{"Weir-Query", "a=1&b=%20c?d", func(j *job) bool { return j.Query == "a=1&b=%20c?d" }},
		{"Weir-Header-X-Source", "web", func(j *job) bool { return reflect.DeepEqual(j.Forward, forward("X-Source", "web")) }},
		{"weir-header-x-source", "é", func(j *job) bool { return reflect.DeepEqual(j.Forward, forward("X-Source", "é")) }},
		{"Content-Type", "text/plain", func(j *job) bool { return reflect.DeepEqual(j.Forward, forward("Content-Type", "text/plain")) }},
		{"content-type", "text/plain", func(j *job) bool { return reflect.DeepEqual(j.Forward, forward("Content-Type", "text/plain")) }},
		{"Weir-Header-Content-Type", "a/b", func(j *job) bool { return reflect.DeepEqual(j.Forward, forward("Content-Type", "a/b")) }},
		{"Weir-Deadline", "30s", func(j *job) bool { return j.Deadline.Equal(someNow.Add(30 * time.Second)) }},
		{"Weir-Deadline", "1h30m", func(j *job) bool { return j.Deadline.Equal(someNow.Add(90 * time.Minute)) }},
		{"Weir-Priority", "high", func(j *job) bool { return j.Priority == ingest.High }},
		{"weir-priority", "low", func(j *job) bool { return j.Priority == ingest.Low }},
		{"Weir-Priority", "normal", func(j *job) bool { return j.Priority == ingest.Normal }},
		{"Weir-Not-Before", "90m", func(j *job) bool { return j.NotBefore.Equal(someNow.Add(90 * time.Minute)) }},
		{"Weir-Not-Before", "366d", func(j *job) bool { return j.NotBefore.Equal(someNow.Add(ingest.MostNotBefore)) }},
		{"Weir-Not-Before", "8784h", func(j *job) bool { return j.NotBefore.Equal(someNow.Add(ingest.MostNotBefore)) }},
		{"Weir-Not-Before", "2026-01-02T16:04:06+01:00", func(j *job) bool { return j.NotBefore.Equal(someNow.Add(time.Second)) }},
		{"Weir-Not-Before", "2020-01-01T00:00:00Z", func(j *job) bool { return j.NotBefore.Before(someNow) }},
		{"Weir-Deadline", "2026-01-02T16:04:06+01:00", func(j *job) bool { return j.Deadline.Equal(someNow.Add(time.Second)) }},
		{"Weir-Deadline", "2026-01-02T15:04:05.000000001Z", func(j *job) bool { return j.Deadline.Equal(someNow.Add(1)) }},
		{"Weir-Cost", "1", func(j *job) bool { return j.Cost == 1 }},
		{"Weir-Cost", "4000", func(j *job) bool { return j.Cost == 4000 }},
		{"Weir-Reply-To", "_INBOX.abc.1", func(j *job) bool { return j.ReplyTo == "_INBOX.abc.1" }},
		{"Weir-Reply-To", "weird.results", func(j *job) bool { return j.ReplyTo == "weird.results" }},
		{"traceparent", "00-1-2-01", func(j *job) bool { return j.Header.Get("traceparent") == "00-1-2-01" }},
		{"X-Whatever", "kept", func(j *job) bool { return j.Header.Get("X-Whatever") == "kept" && len(j.Forward) == 0 }},
		{"Authorization", "kept, not sent", func(j *job) bool { return len(j.Forward) == 0 }},
		{"Nats-Whatever", "renamed", func(j *job) bool { return j.Header.Get("Weir-Job-Nats-Whatever") == "renamed" }},
		{"Nats-Expected-Stream", "checked by the service", func(*job) bool { return true }},
		{"Weir-Dead-Reason", "left by a letter", func(*job) bool { return true }},
		{"Weir-Key", "left by a letter", func(j *job) bool { return j.Key == "vip-1" }},
	} {
		t.Run(c.name+"="+cut(c.value), func(t *testing.T) {
			j, refusal := parse(nats.Header{c.name: {c.value}}, plainRule)
			if refusal != nil {
				t.Fatalf("refused: %s", refusal)
			}
			if j.ID == "" || j.DedupeID == "" || !c.want(j) {
				t.Errorf("it became %+v", j)
			}
			for name := range j.Header {
				if strings.HasPrefix(strings.ToLower(name), "nats-") {
					t.Errorf("the server would obey the stored header %s", name)
				}
			}
		})
	}
}

// TestHeaderRefused checks that invalid values of each header of the contract are refused.
func TestHeaderRefused(t *testing.T) {
	for name, values := range map[string][]string{
		"Nats-Msg-Id":     {"", strings.Repeat("i", 256), "a b", "a\tb", "a\x00", "é", "a\x7f", " a"},
		"Weir-Job-Id":     {"", strings.Repeat("i", 256), "a b", "é"},
		"Weir-Method":     {"", "GET", "post", "POST ", "POST /x HTTP/1.1", strings.Repeat("M", 9000)},
		"Weir-Path":       badPaths,
		"Weir-Query":      {"a b", "a\r\nX: y", "a\n", "a\x00", "#f", "é", "a\x7f", strings.Repeat("q", 4097)},
		"Weir-Priority":   {"", "urgent", "High", "low ", "1", "-1"},
		"Weir-Not-Before": {"", "soon", "30", "-1s", "-1d", "1.5d", "d", "367d", "99999d", "8784h0m1s", "2027-01-03T15:04:06Z", "2030-01-01T00:00:00Z", "2026-01-02 15:04:05", "1e99h", "9999-12-31T23:59:59Z"},
		"Weir-Deadline":   {"", "soon", "30", "-1s", "0s", "2026-01-02T15:04:05Z", "2020-01-01T00:00:00Z", "2026-01-02 15:04:05", "1e99h", "NaN", strings.Repeat("1", 9000) + "s"},
		"Weir-Cost":       {"", "0", "-1", "1.5", "1e2", "99999999999999999999", "0x10", " 1", "one"},
		"Weir-Reply-To": {
			"", "a b", "a.*", "a.>", ">", "*", "a..b", ".a", "a.", "a\r\nPUB x", "a\tb", strings.Repeat("a", 513),
			"$JS.API.STREAM.DELETE.WEIR_DEAD", "$SYS.REQ", "$KV.weir_config.current", "weir.jobs.credit.x", "weir.dead._.invalid._", "weir.",
		},
		"Weir-Redrives":             {"", "-1", "many", "99999999999"},
		"Content-Type":              {"a\nb", "a\rb", "a\x00b", "a\x7f"},
		"Weir-Header-X-Source":      {"a\nb", "a\r\nX-Admin: 1", "a\x00b", "a\x7f"},
		"Weir-Header-X-Other":       {"not named"},
		"Weir-Header-Host":          {"evil.example.com"},
		"Weir-Header-Authorization": {"Bearer stolen"},
		"Weir-Header-":              {"no name"},
		"Weir-Header-X Source":      {"a blank in a name"},
		"Weir-Mehtod":               {"a slip of the pen"},
		"Weir-Outcome":              {"of a result"},
		"Weir-":                     {"nothing"},
		"X Y":                       {"a blank in a name"}, "X\x01": {"control"}, "X(Y)": {"a bracket"}, "Ä": {"not ASCII"},
		"Nats-Expected-Last-Sequence":                 {"1"},
		"Nats-Expected-Last-Msg-Id":                   {"x"},
		"Nats-Expected-Last-Subject-Sequence":         {"0"},
		"Nats-Expected-Last-Subject-Sequence-Subject": {"weir.>"},
		"Nats-Rollup":             {"sub", "all"},
		"nats-rollup":             {"sub"},
		"Nats-TTL":                {"1s"},
		"Nats-Batch-Id":           {"b"},
		"Nats-Batch-Sequence":     {"1"},
		"Nats-Batch-Commit":       {"1"},
		"Nats-Schedule":           {"@at 2026-01-02T15:04:05Z"},
		"Nats-Schedule-Target":    {"x"},
		"Nats-Incr":               {"1"},
		"Nats-Required-Api-Level": {"1"},
	} {
		for _, value := range values {
			t.Run(fmt.Sprintf("%q=%q", name, cut(value)), func(t *testing.T) {
				j, refusal := parse(nats.Header{name: {value}, "Weir-Reply-To": orDefault(name, "Weir-Reply-To", value, "mine")}, plainRule)
				if refusal == nil {
					t.Fatalf("it was taken: %+v", j)
				}
				if refusal.Code != ingest.Invalid || len(refusal.Description) > 400 {
					t.Errorf("refused with %d: %s", refusal.Code, cut(refusal.Description))
				}
				if j.ID == "" || j.Key != "vip-1" {
					t.Errorf("its letter would have the id %q and the key %q", j.ID, j.Key)
				}
				if want := map[bool]string{true: "", false: "mine"}[name == "Weir-Reply-To"]; j.ReplyTo != want {
					t.Errorf("its notice would go to %q, want %q", j.ReplyTo, want)
				}
				if j.Path != "" || j.Query != "" || len(j.Forward) != 0 || j.Method != "POST" || j.Cost != 1 {
					t.Errorf("something of the bad header was taken: %+v", j)
				}
			})
		}
	}
}

func orDefault(name, is, value, otherwise string) []string {
	if name == is {
		return []string{value}
	}
	return []string{otherwise}
}

var badPaths = []string{
	"a", "..", "//host", "//host/a", "http://host/a", "https:/host", "\\\\host", "/a\\b", "/a?b=c", "/a#b",
	"/..", "/../a", "/a/..", "/a/../b", "/.", "/a/./b", "/%2e%2e/a", "/%2E%2e", "/.%2e/", "/%2e", "/a/%252e%252e/b",
	"/%25252e%25252e/", "/..%2fa", "/..%5ca", "/..%255ca", "/..;/a", "/%2e%2e;x=1/a", "/%c0%ae%c0%ae/a", "/%e0%80%ae./a",
	"/a\r\nX: y", "/a\nb", "/a%0d%0aX:y", "/a%0A", "/a%250a", "/a\x00", "/a%00", "/a b", "/a\tb", "/é", "/a\x7f", "/a\xff",
	"/%", "/%2", "/%zz", "/" + strings.Repeat("a", 4096),
}

// TestCostIsBounded checks that a job may not cost more units than limits can count, even if no limit of its api says
// how much a job may cost.
func TestCostIsBounded(t *testing.T) {
	rule := plainRule
	rule.Costs = nil
	for value, taken := range map[string]bool{"4503599627370496": true, "4503599627370497": false, "9223372036854775807": false} {
		j, refusal := parse(nats.Header{"Weir-Cost": {value}}, rule)
		if (refusal == nil) != taken || refusal == nil && j.Cost != ingest.MostUnits {
			t.Errorf("%s: it costs %d, %v", value, j.Cost, refusal)
		}
	}
}

// TestHeaderRepeated checks that a header that may have only one value is refused with two, in any spelling.
func TestHeaderRepeated(t *testing.T) {
	for _, c := range []struct {
		header nats.Header
		ok     bool
	}{
		{nats.Header{"Nats-Msg-Id": {"a", "b"}}, false},
		{nats.Header{"Nats-Msg-Id": {"a", "a"}}, false},
		{nats.Header{"Weir-Path": {"/a", "/b"}}, false},
		{nats.Header{"Weir-Cost": {"1", "2"}}, false},
		{nats.Header{"Content-Type": {"a", "b"}}, false},
		{nats.Header{"Weir-Header-Content-Type": {"a", "b"}}, false},
		{nats.Header{"Weir-Path": {"/a"}, "weir-path": {"/b"}}, false},
		{nats.Header{"Nats-Msg-Id": {"a"}, "NATS-MSG-ID": {"b"}}, false},
		{nats.Header{"X-Customer": {"a"}, "x-customer": {"b"}}, false},
		{nats.Header{"Content-Type": {"a"}, "Weir-Header-Content-Type": {"b"}}, false},
		{nats.Header{"Nats-Msg-Id": {"a"}, "Weir-Job-Id": {"b"}}, true},
		{nats.Header{"Weir-Header-X-Source": {"a", "b"}}, true},
		{nats.Header{"Weir-Header-X-Source": {"a"}, "weir-header-x-source": {"b"}}, true},
		{nats.Header{"X-Whatever": {"a", "b"}}, true},
		{nats.Header{"X-Nothing": {}}, true},
	} {
		if _, refusal := parse(c.header, plainRule); (refusal == nil) != c.ok {
			t.Errorf("%v: %v", c.header, refusal)
		}
	}
}

// TestHeaderIDs checks a job with both ids: Weir-Job-Id names the job, and Nats-Msg-Id this submission of it.
func TestHeaderIDs(t *testing.T) {
	j, refusal := parse(nats.Header{"Nats-Msg-Id": {"again"}, "Weir-Job-Id": {"job"}}, plainRule)
	if refusal != nil || j.ID != "job" || j.DedupeID != "again" {
		t.Errorf("id %q, dedupe id %q, %v", j.ID, j.DedupeID, refusal)
	}
	first, _ := parse(nil, plainRule)
	second, _ := parse(nil, plainRule)
	if len(first.ID) != 36 || first.ID[14] != '7' || first.DedupeID != first.ID || first.ID == second.ID {
		t.Errorf("jobs without an id got %q and %q", first.ID, second.ID)
	}
}

// TestHeaderRefusedForOneReason checks that the same job is refused for the same reason every time.
func TestHeaderRefusedForOneReason(t *testing.T) {
	h := nats.Header{"Weir-Cost": {"0"}, "Weir-Method": {"GET"}, "Weir-Path": {".."}, "Weir-Query": {"#"}, "Nats-TTL": {"1s"}}
	_, first := parse(h, plainRule)
	for range 50 {
		if _, again := parse(h, plainRule); again.Description != first.Description {
			t.Fatalf("refused for %q, and then for %q", first, again)
		}
	}
}

// TestHeaderNotForwarded checks that an api gets no headers if its rule names none.
func TestHeaderNotForwarded(t *testing.T) {
	rule := plainRule
	rule.ForwardHeaders = nil
	j, refusal := parse(nats.Header{"Content-Type": {"text/plain"}}, rule)
	if refusal != nil || len(j.Forward) != 0 || j.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%+v, %v", j, refusal)
	}
	if _, refusal := parse(nats.Header{"Weir-Header-Content-Type": {"text/plain"}}, rule); refusal == nil {
		t.Error("a header was taken that the api does not get")
	}
}

// TestHeaderTooLarge checks that a job whose headers are too large for JetStream is refused as the producer's mistake,
// not as an unavailable store.
func TestHeaderTooLarge(t *testing.T) {
	if _, refusal := parse(nats.Header{"X-Big": {strings.Repeat("x", 31<<10)}}, plainRule); refusal != nil {
		t.Errorf("31 KiB: %v", refusal)
	}
	j, refusal := parse(nats.Header{"X-Big": {strings.Repeat("x", 33<<10)}, "Nats-Msg-Id": {"me"}}, plainRule)
	if refusal == nil || refusal.Code != ingest.Invalid || j.ID != "me" {
		t.Errorf("33 KiB: %v", refusal)
	}
}

// TestKeptHeader checks that KeptHeader keeps everything that a stream can store, and renames headers that the server
// or a client would take for its own.
func TestKeptHeader(t *testing.T) {
	h := nats.Header{
		"Nats-Msg-Id": {"new"}, "Weir-Job-Nats-Msg-Id": {"old"}, "nats-rollup": {"all"}, "Status": {"409"}, "X Y": {"odd"},
		"X-Plain": {"a", "b"},
	}
	want := nats.Header{
		"Weir-Job-Nats-Msg-Id": {"new"}, "Weir-Job-Nats-rollup": {"all"}, "Weir-Job-Nats-Status": {"409"}, "X%20Y": {"odd"},
		"X-Plain": {"a", "b"},
	}
	if got := ingest.KeptHeader(h, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := ingest.KeptHeader(nats.Header{"Status": {"409"}}, []byte("body")); got.Get("Status") != "409" {
		t.Errorf("beside a body a Status is nobody's word but the job's: %v", got)
	}
	huge := nats.Header{"A": {"kept"}, "B": {strings.Repeat("x", 64<<10)}}
	if got := ingest.KeptHeader(huge, nil); len(got) != 1 || got.Get("A") != "kept" {
		t.Errorf("of 64 KiB %d headers were kept", len(got))
	}
}

func forward(name string, values ...string) []ingest.HeaderField {
	var fields []ingest.HeaderField
	for _, v := range values {
		fields = append(fields, ingest.HeaderField{Name: name, Value: v})
	}
	return fields
}

func cut(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
