package weirtest

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"

	"github.com/nats-io/nats.go"
)

const OutcomeYAML = `
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

// CheckArrivals checks the calls of a key's only job: their number, their idempotency keys, and that no call comes
// earlier than the answer before it asked for.
func (r *Rig) CheckArrivals(t *testing.T, key string, calls int, idempotent bool, orders []string) {
	t.Helper()
	arrivals := r.API.Arrivals(key)
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
			after = "1" // the least wait for a date nearly two seconds ahead
		}
		if seconds, err := strconv.ParseFloat(after, 64); err == nil && float64(a.At-arrivals[i-1].End) < seconds*1e9 {
			t.Errorf("call %d came %v after an answer that asked for %s s", i+1, time.Duration(a.At-arrivals[i-1].End), after)
		}
	}
}

// StartOrdered starts a fake api that answers the n-th call of a key as the key's n-th order says. The key is the last
// part of the path.
func StartOrdered(t *testing.T, orders map[string][]string) *fakeapi.API {
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

// RigOn starts a worker with this configuration for a running api.
func RigOn(t *testing.T, api *fakeapi.API, yaml string) *Rig {
	t.Helper()
	r := &Rig{T: t, API: api, Dir: t.TempDir(), YAML: yaml}
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

func sameEnd(a, b End) bool { return reflect.DeepEqual(a, b) }

func Number(t *testing.T, h nats.Header, name string) int {
	t.Helper()
	n, err := strconv.Atoi(h.Get(name))
	if err != nil {
		t.Errorf("header %s: %v", name, err)
	}
	return n
}
