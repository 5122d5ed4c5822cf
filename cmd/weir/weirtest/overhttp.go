package weirtest

import (
	"net/http"
	"net/url"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest/web"
)

const askedYAML = `
apis:
  a:
    url: %s
    price: 0.10
    headers: {Authorization: "Bearer ${env:SECRET_OF_CANARY}"}
    forward_headers: [X-Key, X-Secret]
    bucket: {rate: 50/s, capacity: 2}
    limits: [{name: all, rate: 100/s}, {name: spend, budget: 10.00/day}]
http:
  tokens:
    shop: {role: producer, token: "${env:SECRET_OF_PRODUCER}"}
    wall: {role: viewer, token: "${env:SECRET_OF_VIEWER}"}
    anna: {role: operator, token: "${env:SECRET_OF_OPERATOR}"}
`

// OverHTTP starts a weir with tokens, a finished job, two waiting jobs and a letter.
func OverHTTP(t *testing.T) *Rig {
	t.Helper()
	r := NewRig(t, fakeapi.Options{}, askedYAML)
	r.Producer().Submit("weir.jobs.a.one", []byte("x"), map[string]string{"Nats-Msg-Id": "done", "Weir-Header-X-Key": "one"})
	r.AwaitCalls(1)
	r.Eventually("the result", func() bool { return r.Store().Messages("WEIR_RESULTS") == 1 })
	if status, body := r.HTTP().Say("POST", "/api/v1/apis/a/keys/k%2F2/pause", web.CanaryOperator, `{"why": "a test"}`); status != http.StatusOK {
		t.Fatalf("a pause: %d %s", status, body)
	}
	for _, id := range []string{"waits", "waits-too", "overflows"} {
		r.Producer().Submit("weir.jobs.a.k%2F2", []byte(web.CanaryBody), map[string]string{"Nats-Msg-Id": id, "Weir-Header-X-Secret": web.CanaryBody, "Weir-Query": "token=" + url.QueryEscape(web.CanaryBody)})
	}
	r.Eventually("the letter", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	return r
}
