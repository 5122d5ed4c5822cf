package jobs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// refusalCase is one line of the contract's table: a job that is not taken.
type refusalCase struct {
	name    string
	subject string // after weir.jobs.
	header  nats.Header
	body    string
	errCode int
	api     string // of its letter; "_": no such api
	key     string // of its letter; "_": none
}

func refusalCases() []refusalCase {
	with := func(name, value string) nats.Header {
		return nats.Header{name: {value}, "X-Own": {"kept", "twice"}, "Weir-Reply-To": {"_INBOX.mine"}}
	}
	cases := []refusalCase{
		{"unknown api", "none.k", with("X-Any", "1"), "body", 20404, "_", "k"},
		{"unknown api, no key", "none", with("X-Any", "1"), "body", 20404, "_", "_"},
		{"api that is no name", "No%.k", with("X-Any", "1"), "body", 20404, "_", "k"},
		{"no key", "credit", with("X-Any", "1"), "body", 20400, "credit", "_"},
		{"key of 129 bytes", "credit." + strings.Repeat("k", 129), with("X-Any", "1"), "body", 20400, "credit", "_"},
		{"body too large", "credit.k", with("X-Any", "1"), strings.Repeat("x", 101), 20413, "credit", "k"},
		{"headers too large", "credit.k", with("X-Any", strings.Repeat("x", 40<<10)), "body", 20400, "credit", "k"},
		{"another stream", "credit.k", with("Nats-Expected-Stream", "ORDERS"), "body", 20400, "credit", "k"},
		{"two ids", "credit.k", nats.Header{"Nats-Msg-Id": {"a"}, "nats-msg-id": {"b"}}, "body", 20400, "credit", "k"},
		{"over the cost", "credit.k", with("Weir-Cost", "11"), "body", 20400, "credit", "k"},
		{"over a quota's units", "credit.k", with("X-Units", "101"), "body", 20400, "credit", "k"},
		{"units that are no number", "credit.k", with("X-Units", "x"), "body", 20400, "credit", "k"},
		{"over a quota's tokens", "batch.k", with("X-Any", "1"), `{"n":101}`, 20400, "batch", "k"},
		{"half a token", "batch.k", with("X-Any", "1"), `{"n":1.5}`, 20400, "batch", "k"},
		{"no tokens", "batch.k", with("X-Any", "1"), `{}`, 20400, "batch", "k"},
		{"tokens in no JSON", "batch.k", with("X-Any", "1"), "body", 20400, "batch", "k"},
		{"past deadline", "credit.k", with("Weir-Deadline", "2020-01-01T00:00:00Z"), "body", 20400, "credit", "k"},
	}
	for name, value := range map[string]string{
		"Weir-Method": "GET", "Weir-Path": "/../x", "Weir-Query": "a#b", "Weir-Deadline": "soon", "Weir-Cost": "0", "Nats-Msg-Id": "a b",
		"Weir-Header-X-Other": "1", "Weir-Unheard": "1", "Nats-Expected-Last-Sequence": "1", "Nats-Rollup": "sub", "Nats-TTL": "1s",
		"Nats-Batch-Id": "1", "Nats-Schedule": "@every 1s",
	} {
		cases = append(cases, refusalCase{name + " " + value, "credit.k", with(name, value), "body", 20400, "credit", "k"})
	}
	return cases
}

// TestRefusals sends every line of the contract's table over the wire: the answer, the letter and the event of each,
// no call, and a weir that goes on.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit:
    url: %[1]s
    methods: [POST]
    forward_headers: [X-Source]
    max_body: 100B
    bucket: {rate: 1000/s, burst: 10, capacity: 100}
    limits:
      - {name: tokens, rate: 1000/s, burst: 10, cost: header:Weir-Cost}
      - {name: units, quota: 100/day, tz: UTC, cost: header:X-Units}
  batch:
    url: %[1]s
    bucket: {rate: 1000/s, burst: 10, capacity: 100}
    limits:
      - {name: tokens, quota: 100/day, tz: UTC, cost: json:/n}
      - {name: watched, quota: 50/day, tz: UTC, cost: json:/n, shadow: true}
`)
	events, err := r.NC.SubscribeSync("weir.events.>")
	if err != nil {
		t.Fatal(err)
	}
	notices, err := r.NC.SubscribeSync("_INBOX.mine")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range refusalCases() {
		t.Run(c.name, func(t *testing.T) {
			reply, err := r.NC.RequestMsg(&nats.Msg{Subject: "weir.jobs." + c.subject, Header: c.header, Data: []byte(c.body)}, weirtest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			a := checkRefusal(t, reply, c.errCode)
			letter := checkLetter(t, r, c, a)
			checkDeadEvent(t, events, c, a, letter)
			if c.header.Get("Weir-Reply-To") == "" {
				return
			}
			notice, err := notices.NextMsg(weirtest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if len(notice.Data) != 0 || notice.Header.Get("Weir-Outcome") != "invalid" || notice.Header.Get("Weir-Job-Id") != a.Job {
				t.Errorf("the notice is %v %q", notice.Header, notice.Data)
			}
		})
	}
	if a := r.Producer().Submit("weir.jobs.credit.k", []byte("good"), nil); a.Error != nil {
		t.Errorf("a good job behind them: %+v", a)
	}
	if a := r.Producer().Submit("weir.jobs.batch.k", []byte(`{"n":100}`), nil); a.Error != nil {
		t.Errorf("a job that takes the whole quota: %+v", a)
	}
	r.AwaitCalls(2)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit")+r.Store().Waiting("batch") == 0 })
	if calls := len(r.API.All()); calls != 2 {
		t.Errorf("%d calls, of two good jobs", calls)
	}
	if n := r.Store().Messages("WEIR_DEAD"); n != len(refusalCases()) {
		t.Errorf("%d letters for %d refusals", n, len(refusalCases()))
	}
}

func checkRefusal(t *testing.T, reply *nats.Msg, errCode int) producer.Answer {
	t.Helper()
	if reply.Header.Get("Status") != "" || len(reply.Header) != 2 {
		t.Errorf("the answer has a status line, or other headers than an error of a service: %v", reply.Header)
	}
	var parts struct{ Error map[string]any }
	var a producer.Answer
	for _, into := range []any{&parts, &a} {
		if err := json.Unmarshal(reply.Data, into); err != nil {
			t.Fatalf("%s: %v", reply.Data, err)
		}
	}
	if a.Error == nil || a.Error.ErrCode != errCode || a.Error.Code != errCode%1000 || a.Error.Description == "" || a.Seq != 0 || a.Letter == 0 {
		t.Fatalf("answered %s, want err_code %d and a letter", reply.Data, errCode)
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != strconv.Itoa(a.Error.Code) || reply.Header.Get("Nats-Service-Error") == "" {
		t.Errorf("its headers say %v", reply.Header)
	}
	if len(parts.Error) != 3 {
		t.Errorf("inside error stand %v: nats.py fails on more than three", parts.Error)
	}
	if len(reply.Data) > 1200 {
		t.Errorf("the answer has %d bytes", len(reply.Data))
	}
	return a
}

func checkLetter(t *testing.T, r *weirtest.Rig, c refusalCase, a producer.Answer) *jetstream.RawStreamMsg {
	t.Helper()
	dead, err := r.JS.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	letter, err := dead.GetMsg(t.Context(), a.Letter)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("weir.dead.%s.invalid.%s", c.api, c.key); letter.Subject != want {
		t.Errorf("the letter is on %s, want %s", letter.Subject, want)
	}
	body := c.body
	if c.errCode == 20413 {
		body = ""
	}
	if string(letter.Data) != body {
		t.Errorf("the letter holds %q, the job held %q", letter.Data, body)
	}
	api := strings.TrimPrefix(c.api, "_")
	for name, want := range map[string]string{
		"Weir-Dead-Reason": "invalid", "Weir-Dead-Detail": a.Error.Description, "Weir-Dead-Attempts": "0", "Weir-Dead-Status": "0",
		"Weir-Dead-Billed": "no", "Weir-Redrives": "0", "Weir-Api": api, "Weir-Key": c.key, "Weir-Job-Id": a.Job,
	} {
		if got := letter.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if at, err := time.Parse(time.RFC3339Nano, letter.Header.Get("Weir-Dead-At")); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("it died at %q (%v)", letter.Header.Get("Weir-Dead-At"), err)
	}
	for name, values := range c.header {
		if strings.EqualFold(name[:5], "Nats-") {
			name = "Weir-Job-Nats-" + name[5:]
		}
		if !slices.Equal(letter.Header[name], values) {
			t.Errorf("header %s was %.60q and is %.60q", name, values, letter.Header[name])
		}
	}
	if a.Job == "" {
		t.Error("the job has no id")
	}
	return letter
}

func checkDeadEvent(t *testing.T, events *nats.Subscription, c refusalCase, a producer.Answer, letter *jetstream.RawStreamMsg) {
	t.Helper()
	msg, err := events.NextMsg(weirtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		SpecVersion, ID, Source, Type, Subject, Time, DataContentType string
		Data                                                          map[string]any
	}
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("weir.events.dead.%s.%s", c.api, c.key); msg.Subject != want || msg.Header.Get("Content-Type") != "application/cloudevents+json" {
		t.Errorf("the event is on %s, want %s; %v", msg.Subject, want, msg.Header)
	}
	if e.SpecVersion != "1.0" || e.ID == "" || e.Type != "weir.dead.v1" || e.Source != "/weir/"+strings.TrimPrefix(c.api, "_") ||
		e.Subject != strings.TrimPrefix(c.key, "_") || e.DataContentType != "application/json" {
		t.Errorf("not the CloudEvent it should be: %s", msg.Data)
	}
	want := map[string]any{
		"job": a.Job, "reason": "invalid", "detail": letter.Header.Get("Weir-Dead-Detail"), "attempts": 0.0, "billed": "no", "dead_letter_seq": float64(a.Letter),
	}
	if !reflect.DeepEqual(e.Data, want) {
		t.Errorf("it tells %v, want %v", e.Data, want)
	}
}

// rawClient speaks NATS's protocol by hand: it can send what no client library lets a producer send.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newRawClient(t *testing.T, address string) *rawClient {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(weirtest.Patience)); err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, conn: conn, in: bufio.NewReader(conn)}
	c.write("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nPING\r\n")
	for line := ""; !strings.HasPrefix(line, "PONG"); {
		if line, err = c.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *rawClient) write(text string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) publish(subject, reply, header, body string) {
	c.t.Helper()
	c.write(fmt.Sprintf("HPUB %s %s %d %d\r\n%s%s\r\n", subject, reply, len(header), len(header)+len(body), header, body))
}

// TestOddProducers writes what no client library would write. It harms neither weir nor other jobs, and its own jobs
// are accepted whole or are letters.
func TestOddProducers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	r := weirtest.NewRig(t, fakeapi.Options{Script: g.script, KeepBody: 16}, `
apis:
  credit: {url: %s, methods: [POST], bucket: {rate: 1000/s, burst: 100, capacity: 1000, in_flight: 1}}
`)
	raw := newRawClient(t, r.Worker.NATSURL())
	answers, err := r.NC.SubscribeSync("answers.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	odd := map[string]struct {
		header, body string
		ok           bool
	}{
		"status":         {"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n", "", true},
		"inline-status":  {"NATS/1.0 503\r\n\r\n", "", true},
		"control":        {"NATS/1.0 100 Idle Heartbeat\r\n\r\n", "", true},
		"name-blank":     {"NATS/1.0\r\nX Y: 1\r\n\r\n", "b", false},
		"name-bracket":   {"NATS/1.0\r\nX(Y): 1\r\n\r\n", "b", false},
		"name-bytes":     {"NATS/1.0\r\nX\xff\x01: 1\r\n\r\n", "b", false},
		"value-bytes":    {"NATS/1.0\r\nX-Any: \x01\xff\r\n\r\n", "b", true},
		"value-blanks":   {"NATS/1.0\r\nX-Any:   a  \r\n\r\n", "b", true},
		"empty-name":     {"NATS/1.0\r\n: 1\r\n\r\n", "b", true},
		"huge":           {"NATS/1.0\r\nX-Big: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", "b", false},
		"huge-bad-names": {"NATS/1.0\r\n" + strings.Repeat("Nats-Q: 1\r\n", 7000) + "\r\n", "b", false},
	}
	good := 0
	for name, c := range odd {
		for i := range 20 { // in one group with the odd one
			raw.publish("weir.jobs.credit.neighbour", fmt.Sprintf("answers.good-%s-%d", name, i), "NATS/1.0\r\nX-Any: 1\r\n\r\n", "good")
			if i == 10 {
				raw.publish("weir.jobs.credit."+name, "answers."+name, c.header, c.body)
			}
			good++
		}
	}
	for range good + len(odd) {
		msg, err := answers.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(msg.Subject, "answers.")
		var a producer.Answer
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			t.Fatal(err)
		}
		if want := strings.HasPrefix(name, "good-") || odd[name].ok; want != (a.Error == nil) || !want && (a.Error.ErrCode != 20400 || a.Letter == 0) {
			t.Errorf("%s is answered %.200s", name, msg.Data)
		}
	}
	taken := good
	for name, c := range odd {
		if c.ok {
			taken++
		} else if len(r.Store().Letters("credit", name)) != 1 {
			t.Errorf("%s left %d letters", name, len(r.Store().Letters("credit", name)))
		}
	}
	g.lift()
	r.AwaitCalls(taken)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	if results := r.Store().Messages("WEIR_RESULTS"); results != taken {
		t.Errorf("%d results of %d jobs", results, taken)
	}
}

// TestReplySubjectsOfOthers: a producer that may publish jobs and nothing else must not make weir publish for it.
func TestReplySubjectsOfOthers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	r := weirtest.NewRig(t, fakeapi.Options{Script: g.script}, `
apis:
  credit: {url: %s, bucket: {rate: 1000/s, capacity: 100}}
`)
	r.Producer().Submit("weir.jobs.none.k", nil, nil) // a letter to be lost
	heard, err := r.NC.SubscribeSync("_INBOX.operator.>")
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	for i, subject := range []string{
		"$JS.API.STREAM.PURGE.WEIR_DEAD", "$JS.API.STREAM.DELETE.WEIR_DEAD", "$KV.weir_config.current", "weir.jobs.credit.echo", "weir.dead.x.invalid.x",
		"_INBOX.operator.abc", "orders.created",
	} {
		if i < 5 { // a publisher may name any other reply subject
			if err := r.NC.PublishRequest("weir.jobs.credit.k", subject, nil); err != nil {
				t.Fatal(err)
			}
			published++
		}
		a := r.Producer().Submit("weir.jobs.credit.k", nil, map[string]string{"Weir-Reply-To": subject})
		if a.Error == nil || a.Letter != uint64(i+2) {
			t.Errorf("reply to %s: %+v", subject, a)
		}
	}
	if a := r.Producer().Submit("weir.jobs.credit.k", nil, nil); a.Position != published+1 {
		t.Errorf("behind five unanswered jobs: %+v", a)
	}
	if n := r.Store().Messages("WEIR_DEAD"); n != 8 {
		t.Errorf("%d letters, want 8", n)
	}
	if msg, err := heard.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("a producer had weir speak in an operator's inbox: %v", msg.Header)
	}
	if n := r.Store().Depth("credit", "echo"); n != 0 {
		t.Errorf("weir submitted %d jobs of its own", n)
	}
	g.lift()
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
}

// TestSmallestCapacity: a bucket of one, also over restarts.
func TestSmallestCapacity(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	r.Producer().Submit("weir.jobs.credit.k", nil, nil)
	r.AwaitCalls(1)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	for restarts := range 3 {
		if a := r.Producer().Submit("weir.jobs.credit.k", nil, map[string]string{"Nats-Msg-Id": "one"}); a.Error != nil || a.Duplicate != (restarts > 0) || a.Position != 1 {
			t.Errorf("the one, after %d restarts: %+v", restarts, a)
		}
		if a := r.Producer().Submit("weir.jobs.credit.k", nil, nil); a.Error == nil || a.Error.Code != 429 {
			t.Errorf("a second, after %d restarts: %+v", restarts, a)
		}
		r.Stop()
		r.Start()
	}
}
