package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

const outcomeYAML = `
apis:
  safe:
    url: %[1]s/v1
    methods: [POST, GET]
    price: 0.25
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms, on: [429, 503, 409, 501]}
  once:
    url: %[1]s/v1
    price: 0.25
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms, on: [429, 503, 409, 501]}
  safe-brief:
    url: %[1]s/v1
    price: 0.25
    timeout: 1s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms}
  once-brief:
    url: %[1]s/v1
    price: 0.25
    timeout: 1s
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms}
  safe-slow: # a call that succeeds must come before the timeout
    url: %[1]s/v1
    price: 0.25
    timeout: 4s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms}
  once-slow:
    url: %[1]s/v1
    price: 0.25
    timeout: 4s
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 5ms, max: 20ms}
  safe-refused: {url: "http://%[2]s", price: 0.25, idempotency: {header: Idempotency-Key}, bucket: {rate: 1000/s, capacity: 9}, retry: {attempts: 3, min: 5ms, max: 20ms}}
  once-refused: {url: "http://%[2]s", price: 0.25, bucket: {rate: 1000/s, capacity: 9}, retry: {attempts: 3, min: 5ms, max: 20ms}}
  safe-tls: {url: "https://%[3]s", price: 0.25, idempotency: {header: Idempotency-Key}, bucket: {rate: 1000/s, capacity: 9}, retry: {attempts: 3, min: 5ms, max: 20ms}}
  once-tls: {url: "https://%[3]s", price: 0.25, bucket: {rate: 1000/s, capacity: 9}, retry: {attempts: 3, min: 5ms, max: 20ms}}
`

// outcomes are the rows of the contract's table. orders are what the api does with the first call, the second and so on;
// it succeeds at the others.
var outcomes = []struct {
	what, apis string // the kind of the two apis: "" or -brief and so on
	orders     []string
	safe, once end
}{
	{"200", "", nil, end{as: "done", status: 200, attempts: 1, ledger: []string{"done"}}, end{as: "done", status: 200, attempts: 1, ledger: []string{"done"}}},
	{"204", "", []string{"status=204"}, end{as: "done", status: 204, attempts: 1, ledger: []string{"done"}}, end{as: "done", status: 204, attempts: 1, ledger: []string{"done"}}},
	{"303", "", []string{"status=303;location=/v1/elsewhere"}, end{as: "done", status: 303, attempts: 1, ledger: []string{"done"}}, end{as: "done", status: 303, attempts: 1, ledger: []string{"done"}}},
	{"304", "", []string{"status=304"}, end{as: "done", status: 304, attempts: 1, ledger: []string{"done"}}, end{as: "done", status: 304, attempts: 1, ledger: []string{"done"}}},
	{"informational", "", []string{"informational=102;informational=103"}, end{as: "done", status: 200, attempts: 1, ledger: []string{"done"}}, end{as: "done", status: 200, attempts: 1, ledger: []string{"done"}}},
	{"429", "", []string{"status=429"}, pushedOnce, pushedOnce},
	{"503", "", []string{"status=503"}, pushedOnce, pushedOnce},
	{"429 with seconds", "", []string{"status=429;retry-after=1"}, pushedOnce, pushedOnce},
	{"429 with decimals", "", []string{"status=429;retry-after=0.25"}, pushedOnce, pushedOnce},
	{"503 with a date", "", []string{"status=503;retry-after=DATE"}, pushedOnce, pushedOnce},
	{"429 with nonsense", "", []string{"status=429;retry-after=soon"}, pushedOnce, pushedOnce},
	{"409 as listed", "", []string{"status=409;retry-after=0.1"}, pushedOnce, pushedOnce},
	{"501 as listed", "", []string{"status=501"}, pushedOnce, pushedOnce},
	{"429 more often than there are attempts", "", repeat("status=429", 5), end{as: "done", status: 200, attempts: 1, ledger: append(repeat("pushback", 5), "done")}, end{as: "done", status: 200, attempts: 1, ledger: append(repeat("pushback", 5), "done")}},
	{"400", "", []string{"status=400"}, rejected(400), rejected(400)},
	{"404 with Retry-After", "", []string{"status=404;retry-after=1"}, rejected(404), rejected(404)},
	{"422", "", []string{"status=422"}, rejected(422), rejected(422)},
	{"500", "", []string{"status=500"}, retriedOnce, unknownEnd(500, "unknown")},
	{"502", "", []string{"status=502"}, retriedOnce, unknownEnd(502, "unknown")},
	{"500 for good", "", repeat("status=500", 9), exhaustedEnd(500, "unknown"), unknownEnd(500, "unknown")},
	{"reset at the header", "", []string{"reset=header"}, retriedOnce, unknownEnd(0, "unknown")},
	{"reset at the body", "", []string{"reset=body"}, retriedOnce, unknownEnd(0, "unknown")},
	{"reset in the answer", "", []string{"reset=answer;size=4000"}, retriedOnce, unknownEnd(200, "yes")},
	{"closed", "", []string{"close"}, retriedOnce, unknownEnd(0, "unknown")},
	{"closed for good", "", repeat("close", 9), exhaustedEnd(0, "unknown"), unknownEnd(0, "unknown")},
	{"hang", "-slow", []string{"hang"}, retriedOnce, unknownEnd(0, "unknown")},
	{"slow", "-slow", []string{"delay=1h"}, retriedOnce, unknownEnd(0, "unknown")},
	{"slow answer", "-slow", []string{"drip=1h"}, retriedOnce, unknownEnd(200, "yes")},
	{"hang for good", "-brief", repeat("hang", 9), exhaustedEnd(0, "unknown"), unknownEnd(0, "unknown")},
	{"refused", "-refused", nil, exhaustedEnd(0, "no"), exhaustedEnd(0, "no")},
	{"no TLS", "-tls", nil, exhaustedEnd(0, "no"), exhaustedEnd(0, "no")},
}

var (
	pushedOnce  = end{as: "done", status: 200, attempts: 1, ledger: []string{"pushback", "done"}}
	retriedOnce = end{as: "done", status: 200, attempts: 2, ledger: []string{"retry", "done"}}
)

func rejected(status int) end {
	return end{as: "rejected", status: status, attempts: 1, billed: "no", ledger: []string{"rejected"}}
}

func unknownEnd(status int, billed string) end {
	return end{as: "unknown", status: status, attempts: 1, billed: deadletter.Billed(billed), ledger: []string{"unknown"}}
}

func exhaustedEnd(status int, billed string) end {
	return end{as: "exhausted", status: status, attempts: 3, billed: deadletter.Billed(billed), ledger: []string{"retry", "retry", "exhausted"}}
}

func repeat(s string, n int) []string { return strings.Fields(strings.Repeat(s+" ", n)) }

// TestOutcomes goes through the contract's table, on an api that is idempotent and on one that is not.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	orders := map[string][]string{}
	for i, c := range outcomes {
		for _, api := range []string{"safe", "once"} {
			orders[fmt.Sprintf("%s-%d", api, i)] = c.orders
		}
	}
	api, address := startOrdered(t, orders), closedPort(t)
	r := rigOn(t, api, fmt.Sprintf(outcomeYAML, api.URL(), address, strings.TrimPrefix(api.URL(), "http://")))
	for i := range outcomes {
		for _, kind := range []string{"safe", "once"} {
			key := fmt.Sprintf("%s-%d", kind, i)
			r.send(kind+outcomes[i].apis, key, nats.Header{"Nats-Msg-Id": {"id-" + key}, "Weir-Path": {"/" + key}}, "pay "+key)
		}
	}
	for i, c := range outcomes {
		for kind, want := range map[string]end{"safe": c.safe, "once": c.once} {
			t.Run(kind+" "+c.what, func(t *testing.T) {
				key := fmt.Sprintf("%s-%d", kind, i)
				r.checkEnd(t, kind+c.apis, key, "id-"+key, "pay "+key, want)
				calls := len(want.ledger)
				if c.apis == "-refused" || c.apis == "-tls" {
					calls = 0
				}
				r.checkArrivals(t, key, calls, kind == "safe", c.orders)
			})
		}
	}
	if n := len(r.api.Arrivals("elsewhere")); n > 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// checkArrivals holds what the api saw of the job of a key: the number of calls, the same key on each, and none before
// the time that the last answer asked to wait.
func (r *rig) checkArrivals(t *testing.T, key string, calls int, idempotent bool, orders []string) {
	t.Helper()
	arrivals := r.api.Arrivals(key)
	if len(arrivals) != calls {
		t.Errorf("%d calls at the api, want %d", len(arrivals), calls)
	}
	for i, a := range arrivals {
		want := ""
		if idempotent {
			want = "id-" + key
		}
		if got := a.Header("Idempotency-Key"); got != want || string(a.Body) != "pay "+key && a.Ending != fakeapi.ResetHeader || a.Method != http.MethodPost {
			t.Errorf("call %d: %s %q with the key %q, want %q", i+1, a.Method, a.Body, got, want)
		}
		if i == 0 || i > len(orders) {
			continue
		}
		_, after, _ := strings.Cut(orders[i-1], "retry-after=")
		if after == "DATE" {
			after = "1" // at least: of a date nearly two seconds ahead
		}
		if seconds, err := strconv.ParseFloat(after, 64); err == nil && float64(a.At-arrivals[i-1].End) < seconds*1e9 {
			t.Errorf("call %d came %v after an answer that asked for %s s", i+1, time.Duration(a.At-arrivals[i-1].End), after)
		}
	}
}

// startOrdered starts an api that does with the n-th call of a key what the n-th of its orders says. The key is the
// last part of the path.
func startOrdered(t *testing.T, orders map[string][]string) *fakeapi.API {
	t.Helper()
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 1 << 10, Headers: []string{"Idempotency-Key", "Content-Type"},
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			of := orders[q.Key]
			if q.KeyCall > int64(len(of)) {
				return fakeapi.Behaviour{}
			}
			date := time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)
			b, err := fakeapi.ParseBehaviour(strings.ReplaceAll(of[q.KeyCall-1], "DATE", date))
			if err != nil {
				t.Error(err)
			}
			return b
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// rigOn starts a worker with this configuration beside an api that runs.
func rigOn(t *testing.T, api *fakeapi.API, yaml string) *rig {
	t.Helper()
	r := &rig{t: t, api: api, dir: t.TempDir(), yaml: yaml}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func sameEnd(a, b end) bool { return reflect.DeepEqual(a, b) }

func number(t *testing.T, h nats.Header, name string) int {
	t.Helper()
	n, err := strconv.Atoi(h.Get(name))
	if err != nil {
		t.Errorf("header %s: %v", name, err)
	}
	return n
}
