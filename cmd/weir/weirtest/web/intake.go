package web

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"weir/ingest/await"
)

// doorClient keeps its connections open, as producers do.
var doorClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
	DoorConnections.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}}, Timeout: await.Patience}

// DoorConnections counts the connections that doorClient opened.
var DoorConnections atomic.Int64

// Ask sends a request and decodes the JSON of its answer into into.
func Ask(t testing.TB, q *http.Request, into any) *http.Response {
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

// JobOverHTTP is the answer to GET /v1/jobs/{api}/{id}.
type JobOverHTTP struct {
	Status        int
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

func (c Client) JobOverHTTP(path string) (j JobOverHTTP) {
	c.T.Helper()
	q, err := http.NewRequestWithContext(c.T.Context(), http.MethodGet, "http://"+c.Addr+"/v1/jobs/"+path, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	j.Status = Ask(c.T, q, &j).StatusCode
	return j
}
