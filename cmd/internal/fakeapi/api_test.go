package fakeapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// start runs a fake api until the test ends.
func start(t testing.TB, opts fakeapi.Options) *fakeapi.API {
	t.Helper()
	api, err := fakeapi.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return api
}

// client returns an HTTP client that follows no redirects and shares no connections with other tests.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       waits.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request is a request that do sends.
type request struct {
	path   string
	body   string
	header map[string]string
}

// do sends a POST and returns the answer and its body. err is the error of the call, or of reading the body.
func do(t testing.TB, c *http.Client, url string, r request) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// must is do for a call that must be answered.
func must(t testing.TB, c *http.Client, url string, r request) (*http.Response, string) {
	t.Helper()
	res, body, err := do(t, c, url, r)
	if err != nil {
		t.Fatalf("%s: %v", r.path, err)
	}
	return res, body
}

// ended waits until n calls have ended.
func ended(t testing.TB, api *fakeapi.API, n int64) {
	t.Helper()
	await(t, api, func(totals fakeapi.Totals) bool { return totals.Ended >= n })
}

func await(t testing.TB, api *fakeapi.API, reached func(fakeapi.Totals) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waits.Patience)
	defer cancel()
	if err := api.Await(ctx, reached); err != nil {
		t.Fatalf("waiting: %v; totals %+v", err, api.Totals())
	}
}

func TestArrivalIsRecordedWhole(t *testing.T) {
	api := start(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: 2}, Price: 400_000, KeepBody: 5, Headers: []string{"content-type"},
	})
	res, body := must(t, client(t), api.URL(), request{
		path: "/charge/vip%2F1/7?a=b&c=%20", body: "hello world",
		header: map[string]string{
			"Idempotency-Key": "job-1", "User-Agent": "weir/test", "X-Seq": "7", "X-Cost": "3",
			"Content-Type": "text/plain", "Authorization": "Bearer secret",
		},
	})
	if res.StatusCode != 200 || body != "{\"call\":1,\"status\":200}\n" {
		t.Fatalf("answered %d %q", res.StatusCode, body)
	}
	got := api.Arrivals("vip/1")
	if len(got) != 1 {
		t.Fatalf("arrivals of the key: %+v of keys %q", got, api.Keys())
	}
	a := got[0]
	sum := sha256.Sum256([]byte("hello world"))
	want := fakeapi.Arrival{
		Number: 1, At: a.At, End: a.End, Method: "POST", Path: "/charge/vip%2F1/7", Query: "a=b&c=%20", Fields: a.Fields,
		Key: "vip/1", Cost: 3, BodySize: 11, BodyHash: hex.EncodeToString(sum[:]), Body: []byte("hello"),
		Ending: fakeapi.Answered, Status: 200, Billed: true, Charge: 400_000,
	}
	if g, w := mustJSON(t, a), mustJSON(t, want); g != w {
		t.Errorf("recorded %s\nwant     %s", g, w)
	}
	if a.At <= 0 || a.End <= a.At {
		t.Errorf("at %d, end %d", a.At, a.End)
	}
	for name, value := range map[string]string{
		"Idempotency-Key": "job-1", "User-Agent": "weir/test", "X-Seq": "7", "Content-Type": "text/plain", "Authorization": "",
	} {
		if got := a.Header(name); got != value {
			t.Errorf("header %s: recorded %q, want %q", name, got, value)
		}
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestArrivalComesBeforeItsBody checks that an arrival is recorded when the header was read, not only when the body
// was.
func TestArrivalComesBeforeItsBody(t *testing.T) {
	api := start(t, fakeapi.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /slow HTTP/1.1\r\nHost: x\r\nX-Key: k\r\nContent-Length: 4\r\n\r\nab"); err != nil {
		t.Fatal(err)
	}
	await(t, api, func(totals fakeapi.Totals) bool { return totals.Arrivals == 1 })
	before := api.Arrivals("k")[0]
	if before.Ending != fakeapi.Running || before.End != 0 {
		t.Fatalf("recorded as ended: %+v", before)
	}
	if _, err := io.WriteString(conn, "cd"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	after := api.Arrivals("k")[0]
	if after.At != before.At || after.Ending != fakeapi.Answered || after.BodySize != 4 {
		t.Fatalf("recorded %+v, before %+v", after, before)
	}
}

func TestMemoryKeepsTheNewest(t *testing.T) {
	api := start(t, fakeapi.Options{KeepArrivals: 3, Price: 10})
	c := client(t)
	for range 8 {
		must(t, c, api.URL(), request{path: "/"})
	}
	all := api.All()
	if len(all) != 3 || all[0].Number != 6 || all[2].Number != 8 {
		t.Errorf("kept %+v", all)
	}
	totals := api.Totals()
	if totals.Arrivals != 8 || totals.Ended != 8 || totals.Dropped != 5 || totals.Charged != 80 || totals.ByStatus[200] != 8 {
		t.Errorf("totals %+v", totals)
	}
}

func TestOneKeyTooManyIsRefused(t *testing.T) {
	api := start(t, fakeapi.Options{MaxKeys: 2, Key: fakeapi.KeyFrom{Segment: 1}, Price: 1})
	c := client(t)
	for path, want := range map[string]int{"/a": 200, "/b": 200} {
		if res, _ := must(t, c, api.URL(), request{path: path}); res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if res, _ := must(t, c, api.URL(), request{path: "/c"}); res.StatusCode != 503 {
		t.Errorf("third key: %d", res.StatusCode)
	}
	if totals := api.Totals(); totals.Arrivals != 3 || totals.Billed != 2 {
		t.Errorf("totals %+v", totals)
	}
}

func TestBodyTooLong(t *testing.T) {
	api := start(t, fakeapi.Options{MaxBody: 10, Price: 1})
	res, _ := must(t, client(t), api.URL(), request{path: "/", body: "01234567890"})
	if res.StatusCode != 413 || api.Totals().Billed != 0 {
		t.Errorf("answered %d, totals %+v", res.StatusCode, api.Totals())
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	_, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Header: "K", Segment: 1}, Limit: fakeapi.VendorLimit{Count: 5}, MaxKeys: -1,
		Idempotency: fakeapi.Idempotency{Repeat: "x"}, Latency: fakeapi.Latency{Shape: "x"},
	})
	if err == nil {
		t.Fatal("started")
	}
	for _, word := range []string{"Key", "Limit.Per", "MaxKeys", "Repeat", "Shape"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %s", err, word)
		}
	}
}

// TestManyAtOnce checks that nothing is miscounted with many concurrent clients and readers, also for the race
// detector.
func TestManyAtOnce(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 2, Ledger: t.TempDir() + "/ledger", Key: fakeapi.KeyFrom{Segment: 1}})
	c := client(t)
	const clients, each = 16, 50
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for range each {
				must(t, c, api.URL(), request{path: "/" + string(rune('a'+i)), body: "x"})
				api.Arrivals("a")
			}
		})
	}
	waits.Return(t, "all clients", group.Wait)
	if totals := api.Totals(); totals.Billed != clients*each || totals.Charged != 2*clients*each {
		t.Errorf("totals %+v", totals)
	}
	if keys := api.Keys(); len(keys) != clients {
		t.Errorf("keys %q", keys)
	}
	if all := api.All(); !bytes.Equal([]byte(mustJSON(t, all)), []byte(mustJSON(t, fakeapi.ByTime(all)))) {
		t.Error("All is not ordered by time")
	}
}
