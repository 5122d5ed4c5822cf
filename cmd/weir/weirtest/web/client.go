// Package web has clients of the HTTP server of a weir under test, and a receiver of its webhooks.
package web

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/ingest/await"
)

// Client sends requests to the HTTP server of a weir.
type Client struct {
	T    *testing.T
	Addr string
}

// Say sends one request. It returns the answer's status and body.
func (c Client) Say(method, path, token, body string) (status int, answer string) {
	c.T.Helper()
	q, err := http.NewRequestWithContext(await.Context(c.T, method+" "+path), method, "http://"+c.Addr+path, strings.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		c.T.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		c.T.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// Get requests a path from the worker. It returns the status and the body as one text.
func (c Client) Get(path string) string {
	c.T.Helper()
	req, err := http.NewRequestWithContext(c.T.Context(), http.MethodGet, "http://"+c.Addr+path, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	return c.read(req)
}

// read sends a request. It returns the status and the body of the answer as one text.
func (c Client) read(req *http.Request) string {
	c.T.Helper()
	client := http.Client{Timeout: await.Patience}
	res, err := client.Do(req)
	if err != nil {
		c.T.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.T.Fatal(err)
	}
	return res.Status + "\n" + string(body)
}

// DispatchHeld reports whether the api ext holds its calls.
func (c Client) DispatchHeld() bool {
	return strings.Contains(c.Get("/metrics"), `weir_held{api="ext"} 1`)
}
