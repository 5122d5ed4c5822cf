package fakeapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
)

// BenchmarkCalls measures the api with bodies of 256 bytes, over bare connections that do as little as possible. The
// reference is a net/http server that reads the body and answers the same.
func BenchmarkCalls(b *testing.B) {
	b.Run("reference", func(b *testing.B) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{\"call\":1,\"status\":200}\n")
		})}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
		drive(b, listener.Addr().String())
	})
	b.Run("memory", func(b *testing.B) {
		api := start(b, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 2}})
		drive(b, strings.TrimPrefix(api.URL(), "http://"))
	})
	b.Run("ledger", func(b *testing.B) {
		api := start(b, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 2}, Ledger: filepath.Join(b.TempDir(), "ledger")})
		drive(b, strings.TrimPrefix(api.URL(), "http://"))
	})
	b.Run("everything", func(b *testing.B) {
		script, err := fakeapi.Steps(fakeapi.Step{Path: "/pay/never", Do: "status=500"})
		if err != nil {
			b.Fatal(err)
		}
		api := start(b, fakeapi.Options{
			Key: fakeapi.KeyFrom{Segment: 2}, Ledger: filepath.Join(b.TempDir(), "ledger"), KeepBody: 256, Script: script,
			Limit: fakeapi.VendorLimit{Count: 1_000_000, Per: 1}, Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed},
		})
		drive(b, strings.TrimPrefix(api.URL(), "http://"))
	})
}

// drive makes b.N calls over 16 concurrent connections and reports calls per second.
func drive(b *testing.B, addr string) {
	const conns = 16
	calls := make(chan int, b.N)
	for i := range b.N {
		calls <- i
	}
	close(calls)
	failed := make(chan error, conns)
	b.ReportAllocs()
	b.ResetTimer()
	for range conns {
		go func() { failed <- driveOne(addr, calls) }()
	}
	for range conns {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func driveOne(addr string, calls <-chan int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	body := strings.Repeat("b", 256)
	var line []byte
	for i := range calls {
		line = fmt.Appendf(line[:0], "POST /pay/key-%d HTTP/1.1\r\nHost: x\r\nUser-Agent: weir/bench\r\nIdempotency-Key: %d\r\nX-Seq: %d\r\n"+
			"Content-Type: application/json\r\nContent-Length: 256\r\n\r\n%s", i%1000, i, i, body)
		if _, err := conn.Write(line); err != nil {
			return err
		}
		length := 0
		for {
			head, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if len(head) == 2 {
				break
			}
			if value, found := strings.CutPrefix(string(head), "Content-Length: "); found {
				_, _ = fmt.Sscan(value, &length)
			}
		}
		if _, err := in.Discard(length); err != nil {
			return err
		}
	}
	return nil
}
