package weirtest

import (
	"io"
	"net/http"
)

// Get requests a path from the worker. It returns the status and the body as one text.
func (r *Rig) Get(path string) string {
	r.T.Helper()
	req, err := http.NewRequestWithContext(r.T.Context(), http.MethodGet, "http://"+r.Worker.HTTPAddr()+path, nil)
	if err != nil {
		r.T.Fatal(err)
	}
	return r.read(req)
}

// read sends a request. It returns the status and the body of the answer as one text.
func (r *Rig) read(req *http.Request) string {
	r.T.Helper()
	client := http.Client{Timeout: Patience}
	res, err := client.Do(req)
	if err != nil {
		r.T.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	return res.Status + "\n" + string(body)
}
