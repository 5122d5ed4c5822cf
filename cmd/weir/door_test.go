package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/embedded"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// doorClient keeps its connections, as producers do.
var doorClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
	doorConnections.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}}, Timeout: patience}

// doorConnections counts those that were made.
var doorConnections atomic.Int64

// posted is what the door answered.
type posted struct {
	status int
	header http.Header
	answer
	Type, Title, Detail string
	Status              int
	ErrCode             int `json:"err_code"`
}

// post hands a job in over HTTP. path is what stands behind /v1/jobs/.
func post(t testing.TB, addr, path string, body []byte, header nats.Header) posted {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/jobs/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		q.Header[name] = values
	}
	var p posted
	res := ask(t, q, &p)
	p.status, p.header = res.StatusCode, res.Header
	return p
}

// ask sends a request and reads the JSON of its answer.
func ask(t testing.TB, q *http.Request, into any) *http.Response {
	t.Helper()
	res, err := doorClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s %s answers %d %s: %v", q.Method, q.URL, res.StatusCode, text, err)
	}
	return res
}

// jobOverHTTP is what GET says of a job.
type jobOverHTTP struct {
	status        int
	API, Key, Job string
	State         string
	Queue         *struct{ Depth int }
	Letter        *struct{ Seq uint64 }
	Detail        string
	Keys          []string
	Result        *struct {
		Status, Size      int
		Body, ContentType string
	}
}

func (r *rig) jobOverHTTP(path string) (j jobOverHTTP) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.worker.HTTPAddr()+"/v1/jobs/"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	j.status = ask(r.t, q, &j).StatusCode
	return j
}

// must runs a command that is to succeed.
func (r *rig) must(args ...string) string {
	r.t.Helper()
	out, code := r.command(args...)
	if code != 0 {
		r.t.Fatalf("weir %v ends with %d: %s", args, code, out)
	}
	return out
}

// onDisk reports whether a text stands anywhere in the data directory.
func (r *rig) onDisk(text string) (found bool) {
	r.t.Helper()
	err := filepath.WalkDir(filepath.Join(r.dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || found {
			return nil // gone since
		}
		data, _ := os.ReadFile(path)
		found = bytes.Contains(data, []byte(text))
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

const doorYAML = `
apis:
  credit:
    url: %[1]s
    methods: [POST, PUT]
    forward_headers: [X-Source, Content-Type]
    max_body: 100B
    bucket: {rate: 100/s, burst: 10, capacity: 3}
    limits:
      - {name: tokens, rate: 1000/s, burst: 10, cost: header:Weir-Cost}
  tenants:
    url: %[1]s
    key: {from: header:X-Tenant}
    bucket: {rate: 1/s, capacity: 100}
`

// TestJobsOverHTTP: a producer without NATS hands in a job, is refused when the bucket is full, and learns what became of each.
func TestJobsOverHTTP(t *testing.T) {
	r := newRig(t, fakeapi.Options{KeepBody: 100, Headers: []string{"X-Source", "Content-Type"}, Script: func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: "the answer"}
	}}, doorYAML)
	addr := r.worker.HTTPAddr()
	r.must("pause", "credit")
	first := post(t, addr, "credit/a%2Fb%20%25", []byte("hello"), nats.Header{
		"Idempotency-Key": {`"order-1"`}, "Weir-Path": {"/reports"}, "Weir-Method": {"PUT"}, "Content-Type": {"text/x-own"}, "Weir-Header-X-Source": {"web"},
		"Authorization": {"Bearer secret-of-a-proxy"}, "Cookie": {"session=secret-of-a-browser"}, "X-Own": {"dropped"},
	})
	if first.status != 202 || first.Job != "order-1" || first.Key != "a/b %" || first.Position != 1 || first.Seq == 0 {
		t.Fatalf("the first job: %+v", first)
	}
	if want := "/v1/jobs/credit/order-1?key=a%2Fb+%25"; first.header.Get("Location") != want {
		t.Errorf("it is at %s, want %s", first.header.Get("Location"), want)
	}
	if got := first.header.Get("RateLimit-Policy") + " " + first.header.Get("RateLimit"); got != `"bucket";q=3;w=1 "bucket";r=2;t=1` {
		t.Errorf("the bucket is told as %s", got)
	}
	if again := post(t, addr, "credit/a%2Fb%20%25", []byte("hello"), nats.Header{"Nats-Msg-Id": {"order-1"}}); again.status != 202 || !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("sent again it is %+v", again)
	}
	if again := r.submit("weir.jobs.credit.a%2Fb%20%25", []byte("hello"), map[string]string{"Nats-Msg-Id": "order-1"}); !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("sent again over NATS it is %+v", again)
	}
	if j := r.jobOverHTTP("credit/order-1?key=a%2Fb+%25"); j.status != 200 || j.State != "queued" || j.Queue == nil || j.Queue.Depth != 1 || j.Result != nil {
		t.Errorf("it waits, and is told as %+v", j)
	}

	events, err := r.nc.SubscribeSync("weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p := post(t, addr, "credit/a%2Fb%20%25", nil, nil); p.status != 202 {
			t.Fatalf("%+v", p)
		}
	}
	full := post(t, addr, "credit/a%2Fb%20%25", []byte("one too many"), nats.Header{"Nats-Msg-Id": {"order-4"}})
	if full.status != 429 || full.Status != 429 || full.ErrCode != 20429 || full.Letter == 0 || full.Job != "order-4" || !strings.Contains(full.Detail, "holds 3 of 3") {
		t.Errorf("a full bucket answers %+v", full)
	}
	if got := full.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("as %s", got)
	}
	after, err := strconv.Atoi(full.header.Get("Retry-After"))
	if err != nil || after < 1 || int64(after)*1000 < full.RetryMS || full.header.Get("RateLimit") != fmt.Sprintf(`"bucket";r=0;t=%d`, after) {
		t.Errorf("come back in %s, %s, after %d ms", full.header.Get("Retry-After"), full.header.Get("RateLimit"), full.RetryMS)
	}
	if n := r.messages("WEIR_DEAD"); n != 1 { // it was there before the answer
		t.Errorf("%d letters", n)
	}
	if n := r.messages("WEIR_EVENTS"); n < 1 {
		t.Errorf("%d events", n)
	}
	if _, err := events.NextMsg(patience); err != nil {
		t.Errorf("no event: %v", err)
	}
	if j := r.jobOverHTTP("credit/order-4"); j.State != "dead" || j.Letter == nil || j.Letter.Seq != full.Letter {
		t.Errorf("the refused job is told as %+v", j)
	}

	r.must("resume", "credit")
	r.awaitCalls(3)
	var done jobOverHTTP
	r.eventually("the result", func() bool { done = r.jobOverHTTP("credit/order-1"); return done.State == "done" && done.Result != nil })
	if done.Result.Status != 200 || done.Result.Body != "the answer" {
		t.Errorf("the result is %+v", done.Result)
	}
	for _, c := range r.api.All() {
		if c.Header("X-Source") == "web" && (c.Method != "PUT" || !strings.HasSuffix(c.Path, "/reports") || c.Header("Content-Type") != "text/x-own") {
			t.Errorf("called as %s %s %v", c.Method, c.Path, c.Fields)
		}
	}
	if !r.onDisk("one too many") {
		t.Error("the store cannot be searched: mend this test")
	}
	for _, secret := range []string{"secret-of-a-proxy", "secret-of-a-browser", "dropped"} {
		if r.onDisk(secret) {
			t.Errorf("%s was stored", secret)
		}
	}
	if j := r.jobOverHTTP("credit/nobody"); j.status != 404 || j.Detail == "" {
		t.Errorf("a job nobody knows: %+v", j)
	}
}

// TestDoorAndSubjectAgree: the same job over NATS and over HTTP gets the same answer and the same letter, whatever is wrong with it.
func TestDoorAndSubjectAgree(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, doorYAML)
	addr := r.worker.HTTPAddr()
	cases := map[string]struct {
		path, subject string
		header        nats.Header
		body          string
		status        int
	}{
		"good":                  {"credit/k", "credit.k", nats.Header{"Weir-Path": {"/x"}, "Weir-Cost": {"2"}}, "body", 202},
		"a key of three tokens": {"credit/a.b.c", "credit.a.b.c", nil, "body", 202},
		"a key of bytes":        {"credit/%2A%3E%20", "credit.%2A%3E%20", nil, "body", 202},
		"a key in a header":     {"tenants", "tenants", nats.Header{"X-Tenant": {"t1"}}, "body", 202},
		"two places of a key":   {"tenants/k", "tenants.k", nats.Header{"X-Tenant": {"t1"}}, "body", 400},
		"no key in a header":    {"tenants", "tenants", nil, "body", 400},
		"unknown api":           {"none/k", "none.k", nil, "body", 404},
		"no name of an api":     {"No%25/k", "No%.k", nil, "body", 404},
		"no key":                {"credit", "credit", nil, "body", 400},
		"key of 129 bytes":      {"credit/" + strings.Repeat("k", 129), "credit." + strings.Repeat("k", 129), nil, "body", 400},
		"key that is no UTF-8":  {"credit/%FF", "credit.%FF", nil, "body", 400},
		"body too large":        {"credit/k", "credit.k", nil, strings.Repeat("x", 101), 413},
		"headers too large":     {"credit/k", "credit.k", nats.Header{"Weir-Header-X-Source": {strings.Repeat("x", 40<<10)}}, "body", 400},
		"past deadline":         {"credit/k", "credit.k", nats.Header{"Weir-Deadline": {"2020-01-01T00:00:00Z"}}, "body", 400},
		"another stream":        {"credit/k", "credit.k", nats.Header{"Nats-Expected-Stream": {"ORDERS"}}, "body", 400},
		"two paths":             {"credit/k", "credit.k", nats.Header{"Weir-Path": {"/a", "/b"}}, "body", 400},
		"a redrive of a job":    {"credit/k", "credit.k", nats.Header{"Weir-Redrives": {"1"}, "Weir-Job-Id": {"x"}, "Nats-Msg-Id": {"x.r1"}}, "body", 400},
		"an id of a redrive":    {"credit/k", "credit.k", nats.Header{"Nats-Msg-Id": {"x.r1"}}, "body", 400},
		"no trace":              {"credit/k", "credit.k", nats.Header{"traceparent": {"nonsense"}}, "body", 202},
	}
	for name, value := range map[string]string{
		"Weir-Method": "GET", "Weir-Path": "/../x", "Weir-Query": "a#b", "Weir-Deadline": "soon", "Weir-Cost": "0", "Weir-Not-Before": "soon",
		"Nats-Msg-Id": "a b", "Weir-Header-X-Other": "1", "Weir-Unheard": "1", "Nats-Expected-Last-Sequence": "1", "Nats-Rollup": "sub",
		"Nats-Ttl": "1s", "Nats-Batch-Id": "1", "Nats-Schedule": "@every 1s", "Weir-Reply-To": "weir.jobs.credit.k", "Weir-Job-Id": "\x7f",
	} {
		c := cases["unknown api"]
		c.path, c.subject, c.header, c.status = "credit/k", "credit.k", nats.Header{name: {value}}, 400
		if name == "Weir-Job-Id" {
			c.header = nats.Header{name: {strings.Repeat("j", 256)}}
		}
		cases[name+" "+value] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			over := post(t, addr, c.path, []byte(c.body), c.header)
			msg := &nats.Msg{Subject: "weir.jobs." + c.subject, Header: nats.Header{}, Data: []byte(c.body)}
			for name, values := range c.header {
				msg.Header[name] = values
			}
			reply, err := r.nc.RequestMsg(msg, patience)
			if err != nil {
				t.Fatal(err)
			}
			var on answer
			if err := json.Unmarshal(reply.Data, &on); err != nil {
				t.Fatal(err)
			}
			if over.status != c.status || (on.Error == nil) != (c.status == 202) {
				t.Fatalf("over HTTP %d %+v, on NATS %s, want %d", over.status, over, reply.Data, c.status)
			}
			if over.Stream != on.Stream || over.Key != on.Key || (over.Letter == 0) != (on.Letter == 0) {
				t.Errorf("over HTTP %+v, on NATS %+v", over, on)
			}
			if on.Error == nil {
				return
			}
			if over.Detail != on.Error.Description || over.ErrCode != on.Error.ErrCode || over.status != on.Error.Code || over.Title != http.StatusText(c.status) {
				t.Errorf("over HTTP %d %d %q %q, on NATS %+v", over.status, over.ErrCode, over.Title, over.Detail, on.Error)
			}
			if over.Letter == 0 {
				return
			}
			if a, b := r.letterOf(t, over.Letter), r.letterOf(t, on.Letter); !reflect.DeepEqual(a, b) {
				t.Errorf("the letter over HTTP is\n%v\non NATS\n%v", a, b)
			}
		})
	}
}

// letterOf is what a letter says, but for what differs between two of the same.
func (r *rig) letterOf(t *testing.T, seq uint64) map[string]string {
	t.Helper()
	s, err := r.js.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{"subject": msg.Subject, "body": string(msg.Data)}
	for name, values := range msg.Header {
		switch name {
		case "Nats-Sequence", "Nats-Time-Stamp", "Weir-Job-Id", "Weir-Dead-At", "Weir-Dead-Accepted-At", "Nats-Msg-Id", "Content-Type":
		default:
			said[name] = strings.Join(values, ",")
		}
	}
	return said
}

// TestBodiesOverHTTP: what is too large is not read, whether or not its length is told; what does not arrive, or is encoded, is no job.
func TestBodiesOverHTTP(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, doorYAML)
	r.must("pause", "credit")
	addr := r.worker.HTTPAddr()
	raw := func(text string) string {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), q)
		if err != nil {
			t.Fatalf("%q is not answered: %v", text, err)
		}
		defer func() { _ = res.Body.Close() }()
		said, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status + " " + string(said)
	}
	const head = "POST /v1/jobs/credit/k HTTP/1.1\r\nHost: localhost\r\n"
	for text, want := range map[string]string{
		head + "Content-Length: 1000000000000\r\nExpect: 100-continue\r\n\r\n":                                     "413 Request Entity Too Large",
		head + "Content-Length: 101\r\n\r\nx":                                                                      "has 101 bytes",
		head + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n":             "more than 100 bytes",
		head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n":                                                          "400 Bad Request",
		head + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx":                                              "415 Unsupported Media Type",
		head + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\nx\r\n0\r\nWeir-Path: /trailer\r\n\r\n": "202 Accepted", // as RFC 9112 has it: chunked; trailers are nobody's
		head + "Transfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\nx":                                         "501 Not Implemented",
		head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx":                                                  "400 Bad Request",
	} {
		if said := raw(text); !strings.Contains(said, want) {
			t.Errorf("%q is answered %s, want %s", text, said, want)
		}
	}
	letters, waiting := r.messages("WEIR_DEAD"), r.waiting("credit")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, head+"Content-Length: 50\r\n\r\nhalf of "); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	r.eventually("the end of half a body", func() bool { return strings.Contains(r.get("/metrics"), `weir_http_posts_total{code="400"} 2`) })
	if l, w := r.messages("WEIR_DEAD"), r.waiting("credit"); l != letters || w != waiting {
		t.Errorf("half a body left %d letters and %d jobs", l-letters, w-waiting)
	}
}

// TestOtherSitesHandInNothing: a page of another site has its visitor's browser send nothing to a weir on this machine.
func TestOtherSitesHandInNothing(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, doorYAML)
	for name, set := range map[string]func(*http.Request){
		"of another site":      func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"with another origin":  func(q *http.Request) { q.Header.Set("Origin", "http://evil.example") },
		"by a name of its own": func(q *http.Request) { q.Host = "evil.example" },
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.worker.HTTPAddr()+"/v1/jobs/credit/k", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		set(q)
		var p posted
		if res := ask(t, q, &p); res.StatusCode < 400 || p.Detail == "" {
			t.Errorf("%s: %d %+v", name, res.StatusCode, p)
		}
	}
	if n := r.waiting("credit") + r.messages("WEIR_DEAD"); n != 0 {
		t.Errorf("%d jobs came in", n)
	}
}

// TestRolesOverHTTP: only replicas that take jobs take them over HTTP, and the others say so; every one of them says where a job is.
func TestRolesOverHTTP(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, doorYAML)
	file := filepath.Join(r.dir, "weir.yaml")
	r.stop()
	bare, err := embedded.Start(t.Context(), embedded.Options{Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Shutdown)
	start := func(name string, role config.Role) string {
		w, err := worker.Start(await.Context(t, "a worker to start"), externalSettings(t, bare.ClientURL(), file, name, role), testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			w.Stop()
			if err := await.Result(t, "the end of "+name, w.Wait); err != nil {
				t.Error(err)
			}
		})
		return w.HTTPAddr()
	}
	calls, takes := start("calls", config.RoleDispatch), start("takes", config.RoleIngest)
	if p := post(t, calls, "credit/k", nil, nil); p.status != 503 || p.ErrCode != 20503 || !strings.Contains(p.Detail, "WEIR_ROLES") || p.header.Get("Retry-After") == "" {
		t.Errorf("one that takes no jobs answers %+v", p)
	}
	p := post(t, takes, "credit/k", nil, nat("Nats-Msg-Id", "order-1"))
	if p.status != 202 {
		t.Fatalf("one that takes jobs answers %+v", p)
	}
	r.awaitCalls(1)
	for _, addr := range []string{calls, takes} {
		await.Until(t, "the result", func() bool {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+p.header.Get("Location"), nil)
			if err != nil {
				t.Fatal(err)
			}
			var j jobOverHTTP
			ask(t, q, &j)
			return j.State == "done" && j.Result != nil
		})
	}
}

// TestKillAfterAccepted: a job that was answered 202 is there after a kill -9 in the same moment.
func TestKillAfterAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	http := freePort(t)
	r := newKillRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 1000}\n", "WEIR_HTTP_LISTEN="+http)
	accepted := map[string]uint64{}
	for round := range 3 {
		for i := range 10 {
			id := fmt.Sprintf("job-%d-%d", round, i)
			p := post(t, http, "pay/k", []byte(id), nat("Nats-Msg-Id", id))
			if p.status != 202 {
				t.Fatalf("%+v", p)
			}
			accepted[id] = p.Seq
		}
		r.proc.kill()
		r.start()
	}
	for id, seq := range accepted {
		if p := post(t, http, "pay/k", []byte(id), nat("Nats-Msg-Id", id)); !p.Duplicate || p.Seq != seq {
			t.Errorf("%s was accepted as %d, and is %+v", id, seq, p)
		}
	}
}

func nat(name, value string) nats.Header { return nats.Header{name: {value}} }

// TestTenThousandPosts: over connections that are kept, each job once.
func TestTenThousandPosts(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	addr := r.worker.HTTPAddr()
	const posts, clients = 10_000, 64
	before := doorConnections.Load()
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for i := c; i < posts; i += clients {
				id := strconv.Itoa(i)
				if p := post(t, addr, "pay/"+url.PathEscape("k/"+strconv.Itoa(i/50)), []byte(id), nat("Idempotency-Key", id)); p.status != 202 || p.Job != id || p.Duplicate {
					t.Errorf("job %s: %+v", id, p)
					return
				}
			}
		})
	}
	await.Return(t, "all posts", group.Wait)
	if made := doorConnections.Load() - before; made > 2*clients {
		t.Errorf("%d connections were made", made)
	}
	r.eventually("all jobs", func() bool { return r.waiting("pay")+len(r.api.All()) >= posts })
	if text := r.get("/metrics"); !strings.Contains(text, `weir_http_posts_total{code="202"} 10000`) || !strings.Contains(text, `weir_jobs_accepted_total{api="pay"} 10000`) {
		t.Error("they are not counted")
	}
}
