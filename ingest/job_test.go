package ingest_test

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
	"weir/ingest"
)

func TestBodyTooLarge(t *testing.T) {
	for _, c := range []struct {
		bytes int
		rule  ingest.Rule
		key   string
		ok    bool
	}{
		{64, plainRule, "vip-1", true},
		{65, plainRule, "vip-1", false},
		{65, keyed(ingest.KeySource{Header: "X-Customer"}), "acme", false},
		{65, keyed(ingest.KeySource{Pointer: "/customer"}), "", false}, // a body that is too large is not read
	} {
		m := ingest.Message{Body: make([]byte, c.bytes), Header: nats.Header{
			"X-Customer": {"acme"}, "Nats-Msg-Id": {"me"}, "Weir-Reply-To": {"mine"}, "Weir-Cost": {"none"},
		}}
		if c.ok {
			m.Header.Del("Weir-Cost")
		}
		if c.rule.Key == (ingest.KeySource{}) {
			m.Key = "vip-1"
		}
		j, refusal := ingest.Parse(m, &c.rule, someNow)
		switch {
		case c.ok != (refusal == nil):
			t.Errorf("%d bytes: %v", c.bytes, refusal)
		case refusal != nil && refusal.Code != ingest.TooLarge:
			t.Errorf("%d bytes: refused with %d", c.bytes, refusal.Code)
		}
		if j.ID != "me" || j.ReplyTo != "mine" || j.Key != c.key {
			t.Errorf("%d bytes: id %q, reply to %q, key %q", c.bytes, j.ID, j.ReplyTo, j.Key)
		}
	}
}

func keyed(from ingest.KeySource) ingest.Rule {
	rule := plainRule
	rule.Key = from
	return rule
}

// TestKey checks that a job's key comes only from the place that the rule names, and that a job without a key is
// refused.
func TestKey(t *testing.T) {
	subject, header := ingest.KeySource{}, ingest.KeySource{Header: "X-Customer"}
	pointer, deep := ingest.KeySource{Pointer: "/customer"}, ingest.KeySource{Pointer: "/a~1b/1/~01"}
	for _, c := range []struct {
		name    string
		from    ingest.KeySource
		subject string
		header  nats.Header
		body    string
		key     string
	}{
		{"subject", subject, "vip-1", nil, "", "vip-1"},
		{"subject, dots", subject, "tenant.42", nil, "", "tenant.42"},
		{"subject, none", subject, "", nil, "", ""},
		{"subject, 128 bytes", subject, strings.Repeat("k", 128), nil, "", strings.Repeat("k", 128)},
		{"subject, 129 bytes", subject, strings.Repeat("k", 129), nil, "", ""},
		{"subject, not UTF-8", subject, "\xff", nil, "", ""},
		{"header", header, "", nats.Header{"X-Customer": {"acme inc."}}, "", "acme inc."},
		{"header, other case", header, "", nats.Header{"x-customer": {"acme"}}, "", "acme"},
		{"header, none", header, "", nil, "", ""},
		{"header, empty", header, "", nats.Header{"X-Customer": {""}}, "", ""},
		{"header, twice", header, "", nats.Header{"X-Customer": {"a", "b"}}, "", ""},
		{"header, and a subject", header, "vip-1", nats.Header{"X-Customer": {"acme"}}, "", ""},
		{"header, huge", header, "", nats.Header{"X-Customer": {strings.Repeat("k", 129)}}, "", ""},
		{"pointer", pointer, "", nil, `{"customer":"acme"}`, "acme"},
		{"pointer, number", pointer, "", nil, `{"customer":42}`, "42"},
		{"pointer, number as written", pointer, "", nil, `{"customer":1.50e3}`, "1.50e3"},
		{"pointer, large number", pointer, "", nil, `{"customer":12345678901234567890}`, "12345678901234567890"},
		{"pointer, blanks around", pointer, "", nil, " \n{\"customer\":\"a\"}\n ", "a"},
		{"pointer, missing", pointer, "", nil, `{"other":"acme"}`, ""},
		{"pointer, empty", pointer, "", nil, `{"customer":""}`, ""},
		{"pointer, null", pointer, "", nil, `{"customer":null}`, ""},
		{"pointer, true", pointer, "", nil, `{"customer":true}`, ""},
		{"pointer, object", pointer, "", nil, `{"customer":{"id":1}}`, ""},
		{"pointer, array", pointer, "", nil, `{"customer":["a"]}`, ""},
		{"pointer, not an object", pointer, "", nil, `"customer"`, ""},
		{"pointer, no body", pointer, "", nil, "", ""},
		{"pointer, not JSON", pointer, "", nil, `customer=acme`, ""},
		{"pointer, cut off", pointer, "", nil, `{"customer":"acme"`, ""},
		{"pointer, two values", pointer, "", nil, `{"customer":"a"}{"customer":"b"}`, ""},
		{"pointer, a brace too many", pointer, "", nil, `{"customer":"a"}}`, ""},
		{"pointer, a bracket too many", pointer, "", nil, `{"customer":"a"}]`, ""},
		{"pointer, garbage behind", pointer, "", nil, `{"customer":"a"}x`, ""},
		{"pointer, and a subject", pointer, "vip-1", nil, `{"customer":"a"}`, ""},
		{"pointer, deep", deep, "", nil, `{"a/b":[0,{"~1":"k"}]}`, "k"},
		{"pointer, past the end", deep, "", nil, `{"a/b":[0]}`, ""},
		{"pointer, too deep to read", pointer, "", nil, strings.Repeat("[", 20000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := keyed(c.from)
			rule.MaxBody = 1 << 20
			j, refusal := ingest.Parse(ingest.Message{Key: c.subject, Header: c.header, Body: []byte(c.body)}, &rule, someNow)
			if j.Key != c.key || (refusal == nil) != (c.key != "") {
				t.Errorf("the key is %q (%v), want %q", j.Key, refusal, c.key)
			}
			if refusal != nil && (refusal.Code != ingest.Invalid || !strings.HasPrefix(refusal.Description, "key: ")) {
				t.Errorf("refused with %d: %s", refusal.Code, refusal)
			}
		})
	}
}

func TestPointedIndex(t *testing.T) {
	body := []byte(`{"a":["zero","one"]}`)
	for _, index := range []string{"01", "+1", "-0", "-1", "2", "x", ""} {
		if value, err := ingest.Pointed(body, "/a/"+index); err == nil {
			t.Errorf("/a/%s points to %v", index, value)
		}
	}
	if value, err := ingest.Pointed(body, ""); err != nil || reflect.ValueOf(value).Kind() != reflect.Slice {
		t.Errorf("the empty pointer points to %v (%v)", value, err)
	}
}

// wire returns msg as NATS delivers it: with its headers written and read again.
func wire(t interface{ Fatal(...any) }, msg *nats.Msg) ingest.Message {
	var b bytes.Buffer
	b.WriteString("NATS/1.0\r\n")
	if err := http.Header(msg.Header).Write(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\r\n")
	header, err := nats.DecodeHeadersMsg(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return ingest.Message{Header: header, Body: msg.Data}
}

// checkRestored checks that an accepted job is the same after it was read from the queue.
func checkRestored(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, j *ingest.Job, rule *ingest.Rule,
) {
	m := wire(t, j.Message("weir.q.credit.0.j."+ingest.Token(j.Key)))
	m.Key = j.Key
	back, refusal := ingest.Restore(m, rule, someNow)
	if refusal != nil {
		t.Fatalf("a job that was taken is refused out of the queue: %s\n%+v", refusal, j)
	}
	want, got := *j, *back
	want.Header, got.Header = nil, nil
	if len(got.Body) == 0 && len(want.Body) == 0 {
		got.Body, want.Body = nil, nil
	}
	if !want.Deadline.Equal(got.Deadline) {
		t.Fatalf("the deadline %s came back as %s", want.Deadline, got.Deadline)
	}
	if !want.NotBefore.Equal(got.NotBefore) {
		t.Fatalf("not before %s came back as %s", want.NotBefore, got.NotBefore)
	}
	want.Deadline, got.Deadline, want.NotBefore, got.NotBefore = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("it went in as %+v\nand came out as %+v", want, got)
	}
	for name, values := range j.Header {
		if len(values) > 0 && !slices.Equal(back.Header[name], trimmed(values)) {
			t.Fatalf("header %s went in as %q and came out as %q", name, values, back.Header[name])
		}
	}
}

func trimmed(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.Trim(strings.NewReplacer("\r", " ", "\n", " ").Replace(v), " \t")
	}
	return out
}

func TestRestoredAsStored(t *testing.T) {
	text := rapid.StringMatching(`[ -~]{0,12}`)
	header := rapid.Custom(func(t *rapid.T) nats.Header {
		h := nats.Header{}
		for name, values := range map[string]*rapid.Generator[string]{
			"Nats-Msg-Id": rapid.StringMatching(`[!-~]{1,20}`), "Weir-Job-Id": rapid.StringMatching(`[!-~]{1,20}`),
			"Weir-Method": rapid.SampledFrom(plainRule.Methods), "Weir-Path": rapid.SampledFrom([]string{"/", "/a%20b", "/x/y.z"}),
			"Weir-Query": rapid.StringMatching(`[a-z=&%?]{0,12}`), "Weir-Deadline": rapid.SampledFrom([]string{"1s", "48h", "2030-01-01T00:00:00.5Z"}),
			"Weir-Not-Before": rapid.SampledFrom([]string{"0s", "500ms", "2026-01-01T00:00:00Z"}),
			"Weir-Cost":       rapid.SampledFrom([]string{"1", "17", "4000"}), "Weir-Reply-To": rapid.SampledFrom([]string{"mine", "_INBOX.a.b"}),
			"Weir-Redrives": rapid.SampledFrom([]string{"0", "7"}), "Content-Type": rapid.StringMatching(`[!-~]{0,12}`),
			"weir-header-x-source": rapid.StringMatching(`[!-~]{0,12}`), "Nats-Odd": text, "nats-odder": text, "X-Any": text, "traceparent": text,
			"Status": rapid.SampledFrom([]string{"100", "404", "409", "503"}), "Description": text,
		} {
			if rapid.Bool().Draw(t, name) {
				h[name] = []string{values.Draw(t, name)}
			}
		}
		return h
	})
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`.{1,20}`).Filter(func(k string) bool { return ingest.CheckKey(k) == nil }).Draw(t, "key")
		m := ingest.Message{Key: key, Header: header.Draw(t, "header"), Body: rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "body"), Redrive: true}
		j, refusal := ingest.Parse(m, &plainRule, someNow)
		if refusal != nil {
			t.Fatalf("refused: %s", refusal)
		}
		checkRestored(t, j, &plainRule)
	})
}

// TestRestoreUnderAnotherRule checks that a queued job can be restored after the configuration has changed.
func TestRestoreUnderAnotherRule(t *testing.T) {
	j, refusal := parse(nats.Header{"Weir-Method": {"PUT"}, "Weir-Reply-To": {"mine"}, "Nats-Msg-Id": {"me"}}, plainRule)
	if refusal != nil {
		t.Fatal(refusal)
	}
	rule := plainRule
	rule.Methods = []string{"GET"}
	m := wire(t, j.Message("weir.q.credit.0.j.vip-1"))
	m.Key = "vip-1"
	back, refusal := ingest.Restore(m, &rule, someNow)
	if refusal == nil || back.ID != "me" || back.DedupeID != "me" || back.ReplyTo != "mine" || back.Key != "vip-1" {
		t.Errorf("%v: %+v", refusal, back)
	}
}

// TestRestoreWhatALaterVersionLetIn checks a Weir- header that only a later version knows: the intake refuses it, and a
// job from the queue may have it.
func TestRestoreWhatALaterVersionLetIn(t *testing.T) {
	if _, refusal := parse(nats.Header{"Weir-Newer": {"1"}}, plainRule); refusal == nil {
		t.Error("the door lets in what it does not know")
	}
	j, refusal := parse(nats.Header{"Weir-Path": {"/a"}, "Nats-Msg-Id": {"me"}}, plainRule)
	if refusal != nil {
		t.Fatal(refusal)
	}
	j.Header["Weir-Newer"] = []string{"1"}
	m := wire(t, j.Message("weir.q.credit.0.j.vip-1"))
	m.Key = "vip-1"
	if back, refusal := ingest.Restore(m, &plainRule, someNow); refusal != nil || back.Path != "/a" || back.ID != "me" {
		t.Errorf("%v: %+v", refusal, back)
	}
}

// FuzzParseJob passes any headers to Parse. An accepted job must be the same after the queue, must be fit for HTTP, and
// must have no header that NATS would obey.
func FuzzParseJob(f *testing.F) {
	f.Add("vip-1", "Nats-Msg-Id", "a", "Weir-Path", "/a/b", []byte("{}"))
	f.Add("tenant.42", "Weir-Path", "/%2e%2e/x", "Weir-Query", "a=b", []byte(`{"k":1}`))
	f.Add("k", "Weir-Header-X-Source", "web", "weir-header-x-source", "app", []byte{})
	f.Add("k", "Status", "409", "Description", "Consumer Deleted", []byte{})
	f.Add("k", "Weir-Deadline", "30s", "Weir-Cost", "7", []byte("x"))
	f.Add("k", "Weir-Deadline", "30s", "Weir-Not-Before", "20s", []byte("x"))
	f.Add("k", "nats-msg-id", "b", "Weir-Job-Nats-Msg-Id", "a", []byte("x"))
	f.Add("k", "Nats-", "b", "Weir-Job-Nats-Msg-Id", "a", []byte("x"))
	f.Add("k", "Weir-Reply-To", "$JS.API.X", "Content-Type", "a/b", []byte("x"))
	f.Fuzz(func(t *testing.T, key, name1, value1, name2, value2 string, body []byte) {
		m := ingest.Message{Key: key, Header: nats.Header{name1: {value1}, name2: {value2}}, Body: body}
		j, refusal := ingest.Parse(m, &plainRule, someNow)
		if j.ReplyTo != "" && (strings.HasPrefix(j.ReplyTo, "$") || strings.HasPrefix(j.ReplyTo, "weir.") || strings.ContainsAny(j.ReplyTo, "*> \r\n")) {
			t.Fatalf("weir would speak to %q", j.ReplyTo)
		}
		if refusal != nil {
			return
		}
		checkCallable(t, j)
		for name := range j.Header {
			if strings.HasPrefix(strings.ToLower(name), "nats-") || len(body) == 0 && strings.EqualFold(name, "Status") {
				t.Fatalf("NATS would obey %s", name)
			}
		}
		if strings.ContainsAny(value1+value2, "\r\n") || strings.Trim(value1, " \t") != value1 || strings.Trim(value2, " \t") != value2 {
			return // NATS carries no such values
		}
		checkRestored(t, j, &plainRule)
	})
}

// checkCallable writes the job as an HTTP request and reads that.
func checkCallable(t *testing.T, j *ingest.Job) {
	target := "http://api.example.com/v2" + j.Path
	if j.Query != "" {
		target += "?" + j.Query
	}
	req, err := http.NewRequest(j.Method, target, io.NopCloser(bytes.NewReader(j.Body)))
	if err != nil {
		t.Fatalf("a job that cannot be a call was taken: %v\n%+v", err, j)
	}
	if req.URL.Host != "api.example.com" || req.URL.User != nil || !strings.HasPrefix(req.URL.Path, "/v2") || req.URL.Fragment != "" {
		t.Fatalf("the call would leave the api: %s", req.URL)
	}
	if clean := req.URL.JoinPath(".").Path; !strings.HasPrefix(clean+"/", "/v2/") && j.Path != "" && strings.HasPrefix(j.Path, "/") {
		t.Fatalf("the call would climb out of the api: %s", clean)
	}
	for _, f := range j.Forward {
		req.Header.Add(f.Name, f.Value)
	}
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		t.Fatalf("HTTP cannot carry it: %v", err)
	}
}

// TestWhereToPost checks that the refusal of a job that was posted over HTTP names an HTTP address, not a subject.
func TestWhereToPost(t *testing.T) {
	elsewhere := plainRule
	elsewhere.Key.Header = "X-Key"
	for _, c := range []struct {
		rule ingest.Rule
		m    ingest.Message
		want string
	}{
		{plainRule, ingest.Message{}, "key: publish to weir.jobs.credit.<key>"},
		{plainRule, ingest.Message{HTTP: true}, "key: post to /v1/jobs/credit/{key}"},
		{elsewhere, ingest.Message{Key: "k", Header: nats.Header{"X-Key": {"k"}}}, "publish to weir.jobs.credit"},
		{elsewhere, ingest.Message{Key: "k", Header: nats.Header{"X-Key": {"k"}}, HTTP: true}, "post to /v1/jobs/credit"},
	} {
		if _, refusal := ingest.Parse(c.m, &c.rule, time.Now()); refusal == nil || !strings.HasSuffix(refusal.Description, c.want) {
			t.Errorf("%+v: %v", c.m, refusal)
		}
	}
}
