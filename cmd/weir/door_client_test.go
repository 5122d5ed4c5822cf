package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

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

func nat(name, value string) nats.Header { return nats.Header{name: {value}} }

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
