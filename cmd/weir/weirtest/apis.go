package weirtest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
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

const DoorYAML = `
dead_letters: {max_bytes: 64MiB}
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

const UnreachableAPI = "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n"

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
