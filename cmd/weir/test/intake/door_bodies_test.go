package intake

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// TestBodiesOverHTTP: a body that is too large is not read, whether or not its length is declared. A body that does not
// arrive, or is encoded, is no job.
func TestBodiesOverHTTP(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.DoorYAML)
	r.CLI().Must("pause", "credit")
	addr := r.Worker.HTTPAddr()
	raw := func(text string) string {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), q)
		if err != nil {
			t.Fatalf("%q is not answered: %v", text, err)
		}
		defer func() { _ = res.Body.Close() }()
		said, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status + " " + string(said)
	}
	const head = "POST /v1/jobs/credit/k HTTP/1.1\r\nHost: localhost\r\n"
	for text, want := range map[string]string{
		head + "Content-Length: 1000000000000\r\nExpect: 100-continue\r\n\r\n":                                     "413 Request Entity Too Large",
		head + "Content-Length: 101\r\n\r\nx":                                                                      "has 101 bytes",
		head + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n":             "more than 100 bytes",
		head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n":                                                          "400 Bad Request",
		head + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx":                                              "415 Unsupported Media Type",
		head + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\nx\r\n0\r\nWeir-Path: /trailer\r\n\r\n": "202 Accepted", // by RFC 9112: chunked; trailers are ignored
		head + "Transfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\nx":                                         "501 Not Implemented",
		head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx":                                                  "400 Bad Request",
	} {
		if said := raw(text); !strings.Contains(said, want) {
			t.Errorf("%q is answered %s, want %s", text, said, want)
		}
	}
	letters, waiting := r.Store().Messages("WEIR_DEAD"), r.Store().Waiting("credit")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, head+"Content-Length: 50\r\n\r\nhalf of "); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	r.Eventually("the end of half a body", func() bool {
		return strings.Contains(r.HTTP().Get("/metrics"), `weir_http_posts_total{code="400"} 2`)
	})
	if l, w := r.Store().Messages("WEIR_DEAD"), r.Store().Waiting("credit"); l != letters || w != waiting {
		t.Errorf("half a body left %d letters and %d jobs", l-letters, w-waiting)
	}
}
