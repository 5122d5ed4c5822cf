package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// TestDoorIsBounded: beside 1,024 posts whose bodies do not come the next is told 503 and when to come again, and keeps nothing; questions are
// answered all the same. Whoever keeps his body back is told 408 in the end, and then jobs are taken again.
func TestDoorIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	const most = 1024
	addr := r.worker.HTTPAddr()
	var held []net.Conn
	for range most {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST /v1/jobs/pay/slow HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nx", addr); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	await.Until(t, "a post too many", func() bool {
		p := post(t, addr, "pay/k", []byte("x"), nat("Nats-Msg-Id", "too-many"))
		return p.status == http.StatusServiceUnavailable && p.header.Get("Retry-After") != ""
	})
	if status, _ := r.say("GET", "/api/v1/apis/pay/keys", "", ""); status != http.StatusOK {
		t.Errorf("a question is answered %d", status)
	}
	for i, c := range held {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("post %d has no answer: %v", i, err)
		}
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusRequestTimeout {
			t.Fatalf("post %d is answered %d %s", i, answer.StatusCode, text)
		}
		_ = answer.Body.Close()
	}
	if p := post(t, addr, "pay/k", []byte("x"), nat("Nats-Msg-Id", "after")); p.status != http.StatusAccepted {
		t.Errorf("afterwards a post is %+v", p)
	}
	if status, answer := r.say("GET", "/v1/jobs/pay/slow", "", ""); status != http.StatusNotFound {
		t.Errorf("what was told 408 is kept: %d %s", status, answer)
	}
}

// TestJobUnderSeveralKeys: an id that stands under two keys is answered 409 with both, and with either key that job's state.
func TestJobUnderSeveralKeys(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	r.command("pause", "pay")
	addr := r.worker.HTTPAddr()
	for _, key := range []string{"a", "b"} {
		if p := post(t, addr, "pay/"+key, []byte("x"), nat("Nats-Msg-Id", "same")); p.status != http.StatusAccepted {
			t.Fatalf("%+v", p)
		}
	}
	var told struct {
		Keys []string `json:"keys"`
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/jobs/pay/same", nil)
	if err != nil {
		t.Fatal(err)
	}
	res := ask(t, q, &told)
	if slices.Sort(told.Keys); res.StatusCode != http.StatusConflict || !slices.Equal(told.Keys, []string{"a", "b"}) {
		t.Errorf("it is %d with %v", res.StatusCode, told.Keys)
	}
	for _, key := range []string{"a", "b"} {
		if j := r.jobOverHTTP("pay/same?key=" + key); j.Key != key {
			t.Errorf("with the key %s it is %+v", key, j)
		}
	}
}
