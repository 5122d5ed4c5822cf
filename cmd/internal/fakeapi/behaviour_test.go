package fakeapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// order returns a request that orders a behaviour in its header.
func order(text string) request {
	return request{path: "/charge", body: "b", header: map[string]string{fakeapi.OrderHeader: text}}
}

func TestStatusOnOrder(t *testing.T) {
	tests := []struct {
		order      string
		status     int
		billed     bool
		retryAfter string
	}{
		{"status=201", 201, true, ""},
		{"status=204", 204, true, ""},
		{"status=304", 304, false, ""},
		{"status=400", 400, false, ""},
		{"status=429; retry-after=7", 429, false, "7"},
		{"status=429; retry-after=0.25", 429, false, "0.25"},
		{"status=503; retry-after=Fri, 31 Dec 2027 23:59:59 GMT", 503, false, "Fri, 31 Dec 2027 23:59:59 GMT"},
		{"status=503; retry-after=soon", 503, false, "soon"},
		{"status=500; bill=always", 500, true, ""},
		{"status=200; bill=never", 200, false, ""},
		{"status=999", 999, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.order, func(t *testing.T) {
			api := start(t, fakeapi.Options{Price: 5})
			res, _ := must(t, client(t), api.URL(), order(tt.order))
			a := api.All()[0]
			if res.StatusCode != tt.status || a.Status != tt.status || res.Header.Get("Retry-After") != tt.retryAfter {
				t.Errorf("answered %d with Retry-After %q, recorded %d", res.StatusCode, res.Header.Get("Retry-After"), a.Status)
			}
			if a.Billed != tt.billed || (a.Charge == 5) != tt.billed {
				t.Errorf("billed %v, charge %d", a.Billed, a.Charge)
			}
		})
	}
}

func TestOrderByQuery(t *testing.T) {
	api := start(t, fakeapi.Options{})
	res, _ := must(t, client(t), api.URL(), request{
		path: "/charge?a=1&fake-status=429&fake-retry-after=" + url.QueryEscape("Fri, 31 Dec 2027 23:59:59 GMT") + "&fake-header=X-Limit%3A+5",
	})
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "Fri, 31 Dec 2027 23:59:59 GMT" || res.Header.Get("X-Limit") != "5" {
		t.Errorf("answered %d %v", res.StatusCode, res.Header)
	}
}

func TestNonsenseOrdersAreRefused(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1})
	c := client(t)
	for _, text := range []string{
		"status=abc", "status=101", "delay=1", "delay=-1s", "reset=later", "dance", "bill=maybe", "size=-1",
		"size=99999999999", "informational=200", "informational=101", "drip=9999h",
	} {
		if res, body := must(t, c, api.URL(), order(text)); res.StatusCode != 400 || !strings.Contains(body, text) {
			t.Errorf("%s: %d %q", text, res.StatusCode, body)
		}
	}
	if totals := api.Totals(); totals.Billed != 0 {
		t.Errorf("totals %+v", totals)
	}
}

func TestDelayOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{})
	must(t, client(t), api.URL(), order("delay=50ms"))
	if took := fakeapi.ByTime(api.All())[0].Took(); took < 50*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// TestFaultsOnOrder checks each ordered fault as the client sees it and as the ledger records it.
func TestFaultsOnOrder(t *testing.T) {
	tests := []struct {
		order  string
		err    error
		ending fakeapi.Ending
		status int
		billed bool
	}{
		{"reset=header", syscall.ECONNRESET, fakeapi.ResetHeader, 0, false},
		{"reset=header; bill=always", syscall.ECONNRESET, fakeapi.ResetHeader, 0, false},
		{"reset=body", syscall.ECONNRESET, fakeapi.ResetBody, 0, true},
		{"reset=body; status=500", syscall.ECONNRESET, fakeapi.ResetBody, 0, false},
		{"reset=body; delay=5ms; informational=103", syscall.ECONNRESET, fakeapi.ResetBody, 0, true},
		{"reset=answer", syscall.ECONNRESET, fakeapi.ResetAnswer, 200, true},
		{"reset=answer; size=1000000", syscall.ECONNRESET, fakeapi.ResetAnswer, 200, true},
		{"close", io.EOF, fakeapi.Closed, 0, true},
		{"close; bill=never", io.EOF, fakeapi.Closed, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.order, func(t *testing.T) {
			api := start(t, fakeapi.Options{Price: 1})
			res, body, err := do(t, client(t), api.URL(), order(tt.order))
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if got := res != nil; got != (tt.status != 0) {
				t.Errorf("got an answer: %v", got)
			}
			if tt.status != 0 && (body == "" || int64(len(body)) >= res.ContentLength) {
				t.Errorf("got %d bytes of %d", len(body), res.ContentLength)
			}
			a := api.All()[0]
			if a.Ending != tt.ending || a.Status != tt.status || a.Billed != tt.billed {
				t.Errorf("recorded %+v", a)
			}
			if wantBody := tt.ending != fakeapi.ResetHeader; (a.BodyHash != "") != wantBody {
				t.Errorf("body hash %q", a.BodyHash)
			}
		})
	}
}

func TestHangUntilTheClientGivesUp(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL(), strings.NewReader("b"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(fakeapi.OrderHeader, "hang")
	c := client(t)
	go func() {
		_, err := c.Do(req)
		failed <- err
	}()
	// The bill is settled before the client gives up.
	ended(t, api, 1)
	if a := api.All()[0]; a.Ending != fakeapi.Hung || !a.Billed || a.Status != 0 {
		t.Errorf("recorded %+v", a)
	}
	settled := api.All()[0].End
	cancel()
	if err := waits.Receive(t, "the client to give up", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("client got %v", err)
	}
	waitFor(t, func() bool { return api.All()[0].End > settled })
}

func TestGivingUpDuringTheWorkIsBilled(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(fakeapi.OrderHeader, "delay=1h")
	c := client(t)
	go func() {
		await(t, api, func(totals fakeapi.Totals) bool { return totals.Arrivals == 1 })
		cancel()
	}()
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatalf("client got %v", err)
	}
	ended(t, api, 1)
	if a := api.All()[0]; a.Ending != fakeapi.Gone || !a.Billed || a.Status != 0 {
		t.Errorf("recorded %+v", a)
	}
}

func TestRequestCutShort(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1})
	conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(waits.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) != 0 {
		t.Errorf("answered %q, %v", answer, err)
	}
	if a := api.All()[0]; a.Ending != fakeapi.Cut || a.Billed || a.BodySize != 2 {
		t.Errorf("recorded %+v", a)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	api, err := fakeapi.Start(fakeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := client(t)
	failed := make(chan error, 2)
	for _, text := range []string{"hang", "delay=1h"} {
		go func() {
			_, _, err := do(t, c, api.URL(), order(text))
			failed <- err
		}()
	}
	await(t, api, func(totals fakeapi.Totals) bool { return totals.Arrivals == 2 })
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := waits.Receive(t, "the end of a call", failed); err == nil {
			t.Error("a call was answered")
		}
	}
	if totals := api.Totals(); totals.Ended != 2 {
		t.Errorf("totals %+v", totals)
	}
	if err := api.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestDripOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(waits.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-Fake: drip=5ms; drip-size=3; text=abcdefgh\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	var pieces []string
	var body strings.Builder
	for buffer := make([]byte, 64); ; {
		n, err := res.Body.Read(buffer)
		if n > 0 {
			pieces = append(pieces, string(buffer[:n]))
			body.Write(buffer[:n])
		}
		if err != nil {
			break
		}
	}
	if body.String() != "abcdefgh" || res.ContentLength != 8 || len(pieces) < 3 {
		t.Errorf("got %q in pieces %q", body.String(), pieces)
	}
	waitFor(t, func() bool { return api.All()[0].Took() >= 15*time.Millisecond }) // three pauses
}

func TestHugeAnswerOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{})
	res, body := must(t, client(t), api.URL(), order("size=5000001"))
	if res.ContentLength != 5_000_001 || body != strings.Repeat("x", 5_000_001) {
		t.Errorf("length %d, got %d bytes", res.ContentLength, len(body))
	}
}

func TestRedirectOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1})
	c := client(t)
	res, _ := must(t, c, api.URL(), order("location=/elsewhere"))
	if res.StatusCode != 302 || res.Header.Get("Location") != "/elsewhere" || api.Totals().Arrivals != 1 || api.Totals().Billed != 0 {
		t.Errorf("answered %d %v, totals %+v", res.StatusCode, res.Header, api.Totals())
	}
	// If a client follows the redirect, the ledger shows it.
	c.CheckRedirect = nil
	must(t, c, api.URL(), request{path: "/charge?fake-location=/elsewhere&fake-status=307"})
	paths := make(map[string]int)
	for _, a := range api.All() {
		paths[a.Path]++
	}
	if paths["/elsewhere"] != 1 || paths["/charge"] != 2 {
		t.Errorf("paths %v", paths)
	}
}

func TestInformationalFirst(t *testing.T) {
	api := start(t, fakeapi.Options{})
	var got []int
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		got = append(got, code)
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodPost, api.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(fakeapi.OrderHeader, "informational=102; informational=103; status=201")
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 201 || !slices.Equal(got, []int{102, 103}) {
		t.Errorf("answered %v, then %d", got, res.StatusCode)
	}
}

func TestEachOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{})
	for _, c := range []struct{ body, answer string }{
		{`[{"n":1}, {"n":2}]`, `[{"call":1,"status":201,"at":0},{"call":1,"status":201,"at":1}]`},
		{`{"n":1}`, `{"call":2,"status":201}`},
	} {
		r := order("each; status=201")
		r.body = c.body
		if _, got := must(t, client(t), api.URL(), r); strings.TrimSpace(got) != c.answer {
			t.Errorf("%s is answered with %s", c.body, got)
		}
	}
}

func TestEchoOnOrder(t *testing.T) {
	api := start(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}})
	r := order("echo; status=202")
	r.path, r.body = "/a/k?x=1", "body\x00"
	res, body := must(t, client(t), api.URL(), r)
	var echo fakeapi.Echo
	if err := json.Unmarshal([]byte(body), &echo); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 202 || echo.Method != "POST" || echo.Path != "/a/k" || echo.Query != "x=1" || echo.Key != "k" ||
		string(echo.Body) != "body\x00" || echo.Header["X-Fake"][0] != "echo; status=202" || echo.Number != 1 {
		t.Errorf("echo %+v", echo)
	}
}
