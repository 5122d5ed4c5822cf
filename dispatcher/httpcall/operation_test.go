package httpcall

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/certtest"
	"weir/deadletter"
	"weir/ingest"
)

// operated returns an api at a url whose operations are polled at a path.
func operated(t *testing.T, at, path string) *API {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return &API{
		URL: u, Timeout: 10 * time.Second, MaxResult: 1 << 10, Headers: func() ([]ingest.HeaderField, error) {
			return []ingest.HeaderField{{Name: "Authorization", Value: "Bearer secret"}, {Name: "X-Version", Value: "2"}}, nil
		}, Credentials: []string{"Authorization"},
		Operation: &Operation{Accepted: []int{202}, Path: path, Answers: Answers{
			{Status: 200, JSON: "/state", Values: []string{"done"}, Means: OperationDone}, {Status: 200, Means: OperationRunning},
		}},
	}
}

// accept judges an answer that accepts a call of a job at /submit.
func accept(a *API, r Response) Outcome {
	r.Status, r.Sent = 202, true
	return a.Accept(Judge(a, r, time.Now()), r, &ingest.Job{ID: "job 1", Path: "/submit/x"})
}

// TestAddresses checks where operations are polled: below the api's url, or where the answer says, if that is on a host
// that the configuration allows. Values of the answer never add a segment or a parameter.
func TestAddresses(t *testing.T) {
	const location = "{answer-header:Location}"
	long := "/" + strings.Repeat("x", MaxAddress)
	for _, c := range []struct{ path, location, body, want, wrong string }{
		{path: "/operations/{job}", want: "https://api.example.com/v1/operations/job%201"},
		{path: "/operations/{answer:/id}", body: `{"id":"a/b?c=#d"}`, want: "https://api.example.com/v1/operations/a%2Fb%3Fc%3D%23d"},
		{path: "/operations?id={answer:/data/0/id}", body: `{"data":[{"id":17}]}`, want: "https://api.example.com/v1/operations?id=17"},
		{path: "/operations/{answer:/id}", body: `{"id":".."}`, wrong: "cannot be a part of a path"},
		{path: "/operations/{answer:/id}", body: `{"id":null}`, wrong: "no text and no number"},
		{path: "/operations/{answer:/id}", body: `{}`, wrong: "nothing at /id"},
		{path: "/operations/{answer:/id}", body: `nonsense`, wrong: "nothing at /id"},
		{path: location, wrong: "no header Location"},
		{path: location, location: "/v2/operations/1?full=1#part", want: "https://api.example.com/v2/operations/1?full=1"},
		{path: location, location: "status/1", want: "https://api.example.com/v1/submit/status/1"},
		{path: location, location: "https://api.example.com:443/o/1", want: "https://api.example.com:443/o/1"},
		{path: location, location: "https://API.example.com/o/1", want: "https://API.example.com/o/1"},
		{path: location, location: "https://other.example.com/o/1", want: "https://other.example.com/o/1"},
		{path: location, location: "http://api.example.com/o/1", wrong: "not the api's host"},
		{path: location, location: "//evil.example.com/o/1", wrong: "not the api's host"},
		{path: location, location: "https://api.example.com.evil.com/", wrong: "not the api's host"},
		{path: location, location: "https://api.example.com@evil.com/", wrong: "a user or a password"},
		{path: location, location: "https://user:secret@api.example.com/", wrong: "a user or a password"},
		{path: location, location: "https://api.example.com:444/", wrong: "not the api's host"},
		{path: location, location: "file:///etc/passwd", wrong: "no url of http"},
		{path: location, location: "mailto:a@b", wrong: "no url of http"},
		{path: location, location: "https://api.example.com/\x01", wrong: "no url"},
		{path: location, location: long, wrong: "longer than 2048 bytes"},
		{path: "{answer:/status_url}", body: `{"status_url":"https://api.example.com/o/2"}`, want: "https://api.example.com/o/2"},
	} {
		a := operated(t, "https://api.example.com/v1", c.path)
		a.Operation.Hosts = []string{"https://other.example.com"}
		r := Response{Header: http.Header{}, Body: []byte(c.body)}
		if c.location != "" {
			r.Header.Set("Location", c.location)
		}
		out := accept(a, r)
		switch {
		case c.wrong != "":
			if out.Verdict != Dead || out.Reason != deadletter.Unknown || out.Billed != deadletter.BilledYes || !strings.Contains(out.Detail, c.wrong) || strings.Contains(out.Detail, "secret") ||
				(out.Operation != nil) != (c.wrong == "not the api's host") {
				t.Errorf("%s, %q, %s: %+v", c.path, c.location, c.body, out)
			}
		case out.Verdict != Submitted || out.Operation.Address != c.want || out.Billed != deadletter.BilledYes || out.Name() != "submitted":
			t.Errorf("%s, %q, %s: %+v, %+v", c.path, c.location, c.body, out, out.Operation)
		}
	}
}

// TestAcceptedAnswerThatBrokeOff checks that an answer that broke off begins an operation only if its address is known.
func TestAcceptedAnswerThatBrokeOff(t *testing.T) {
	for path, want := range map[string]Verdict{"/operations/{job}": Submitted, "/operations/{answer:/id}": Dead} {
		if out := accept(operated(t, "https://api.example.com/v1", path), Response{Header: http.Header{}, Body: []byte(`{"id":"1"}`), Cut: true}); out.Verdict != want {
			t.Errorf("%s: %+v", path, out)
		}
	}
	keyed := operated(t, "https://api.example.com/v1", "/operations/{answer:/id}")
	keyed.Idempotency = &Idempotency{Header: "Key"}
	if out := accept(keyed, Response{Header: http.Header{}, Body: []byte(`{"id`), Cut: true}); out.Verdict != Again || out.Billed != deadletter.BilledYes || out.Operation != nil {
		t.Errorf("the call is not repeated under its key: %+v", out)
	}
	if out := accept(keyed, Response{Header: http.Header{}, Body: []byte(`{}`)}); out.Verdict != Dead || out.Reason != deadletter.Unknown {
		t.Errorf("a whole answer without an address: %+v", out)
	}
}

// TestCertificateForOwnHostAlone checks that weir shows its certificate to the api's own host, and to no other one of the
// configuration.
func TestCertificateForOwnHostAlone(t *testing.T) {
	authority := certtest.New(t)
	serve := func() (at string, shown *atomic.Int64) {
		shown = new(atomic.Int64)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown.Store(int64(len(r.TLS.PeerCertificates)))
			_, _ = w.Write([]byte("{}")) // the test sees what arrives
		}))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.Sign(time.Now().Add(time.Hour))}, ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL, shown
	}
	own, toOwn := serve()
	listed, toListed := serve()
	a := operated(t, own, "/o/{job}")
	a.Operation.Hosts = []string{listed}
	mine := authority.Sign(time.Now().Add(time.Hour))
	a.Trust = Trust{Load: func() (*tls.Config, error) {
		return &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{mine}, MinVersion: tls.VersionTLS12}, nil
	}}
	o := NewOperations(a, "weir/1")
	t.Cleanup(o.Close)
	for _, at := range []string{own, listed} {
		if _, means, detail := o.Poll(t.Context(), at+"/1", Hooks{}); means != OperationRunning {
			t.Fatalf("%s: %s", at, detail)
		}
	}
	if toOwn.Load() == 0 || toListed.Load() != 0 {
		t.Errorf("the api saw %d certificates of weir, the other host %d", toOwn.Load(), toListed.Load())
	}
}

// TestCancelAddress checks where the api is told to cancel an operation.
func TestCancelAddress(t *testing.T) {
	a := operated(t, "https://api.example.com/v1", "/operations/{job}")
	for path, want := range map[string]string{"": "https://api.example.com/v1/operations/job%201", "/cancel/{answer:/id}": "https://api.example.com/v1/cancel/7"} {
		a.Operation.Cancel = &Cancellation{Method: "DELETE", Path: path}
		if out := accept(a, Response{Header: http.Header{}, Body: []byte(`{"id":7}`)}); out.Operation == nil || out.Operation.Cancel != want {
			t.Errorf("%q: %+v", path, out)
		}
	}
}

// TestPolls checks that only allowed hosts are asked, that a host that is not the api's own gets no header with a
// secret, and what the answers mean.
func TestPolls(t *testing.T) {
	var seen sync.Map
	header := func(of, name string) string {
		h, asked := seen.Load(of)
		if !asked {
			return "not asked"
		}
		return h.(http.Header).Get(name)
	}
	serve := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(name, r.Header.Clone())
			// The test sees what arrives.
			_, _ = w.Write([]byte(`{"state":"` + strings.TrimPrefix(r.URL.Path, "/") + `","output":{"of":"<1>"}}`))
		}))
		t.Cleanup(s.Close)
		return s
	}
	own, listed, other := serve("own"), serve("listed"), serve("other")
	a := operated(t, own.URL+"/v1", "/o/{job}")
	a.Operation.Hosts, a.Operation.Result = []string{listed.URL}, "/output"
	o := NewOperations(a, "weir/1")
	t.Cleanup(o.Close)
	r, means, detail := o.Poll(t.Context(), own.URL+"/done", Hooks{})
	if means != OperationDone || header("own", "Authorization") != "Bearer secret" || header("own", "X-Version") != "2" {
		t.Errorf("%s, %s", means, detail)
	}
	if r = a.Operation.ResultOf(r); string(r.Body) != `{"of":"<1>"}` || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the result is %s, %v", r.Body, r.Header)
	}
	if _, means, _ = o.Poll(t.Context(), listed.URL+"/busy", Hooks{}); means != OperationRunning || header("listed", "Authorization") != "" || header("listed", "X-Version") != "2" {
		t.Errorf("%s with %q", means, header("listed", "Authorization"))
	}
	if r, means, detail = o.Poll(t.Context(), other.URL+"/done", Hooks{}); means != StillUnknown || r.Sent || header("other", "X-Version") != "not asked" || !strings.Contains(detail, "not the api's host") {
		t.Errorf("%s, %s", means, detail)
	}
	if r, _, _ = o.Poll(t.Context(), own.URL+"/done", Hooks{MayWrite: func() bool { return false }}); r.Sent {
		t.Error("it was asked without the right to")
	}
	o.Close()
	if _, means, _ = o.Poll(t.Context(), own.URL+"/done", Hooks{}); means != OperationDone {
		t.Error("a poll that was under way when the terms changed got no answer")
	}
}

// TestResultOf checks which part of the final answer is the result.
func TestResultOf(t *testing.T) {
	for _, c := range []struct{ pointer, body, want string }{
		{"", `{"a":1}`, `{"a":1}`},
		{"/a", `{"a":"text"}`, `"text"`},
		{"/a", `{"a":[1, {"b":2}]}`, `[1, {"b":2}]`},
		{"/missing", `{"a":1}`, `{"a":1}`},
		{"/a", `no json`, `no json`},
	} {
		o := &Operation{Result: c.pointer}
		if r := o.ResultOf(Response{Header: http.Header{}, Body: []byte(c.body)}); string(r.Body) != c.want {
			t.Errorf("%s of %s is %s", c.pointer, c.body, r.Body)
		}
	}
}
