package soak

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// idler is a client that subscribes and then reads nothing more.
func idler(t *testing.T, addr, subject string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(weirtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB %s 1\r\nPING\r\n", subject); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "-ERR") {
			t.Fatalf("a subscriber is told %s", line)
		}
		if strings.HasPrefix(line, "PONG") {
			return conn
		}
	}
}

// TestIdleSubscribersStayInMemory: thousands of subscribers that read nothing have the server inside hold no more than its process may,
// while results go to all of them, and jobs are taken meanwhile.
func TestIdleSubscribersStayInMemory(t *testing.T) {
	t.Parallel()
	const (
		memory      = 192 << 20
		subscribers = 600
		size        = 120_000
	)
	r := newMemoryRig(t)
	r.start("192MiB", "1000/s")
	for range subscribers {
		idler(t, r.addr, "weir.results.>")
	}
	before, _ := r.resident()
	own, err := nats.NkeyOptionFromSeed(filepath.Join(r.dir, "data", connect.OperatorCreds))
	if err != nil {
		t.Fatal(err)
	}
	operator, err := nats.Connect("nats://"+r.addr, nats.Timeout(await.Patience), own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.Close)
	body := bytes.Repeat([]byte("x"), size)
	sent := 0
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); sent++ {
		if err := operator.Publish("weir.results.credit.k", body); err != nil {
			t.Fatal(err)
		}
		if err := operator.FlushWithContext(await.Context(t, "the server to take results")); err != nil {
			t.Fatalf("the operator's connection: %v", err)
		}
	}
	_, most := r.resident()
	t.Logf("%d subscribers, %d results: %d MiB resident before, at most %d MiB", subscribers, sent, before>>20, most>>20)
	if most > 2*memory {
		t.Errorf("%d subscribers that read nothing: %d MiB resident, with WEIR_MEMORY of %d MiB", subscribers, most>>20, memory>>20)
	}
	r.fill(20, 100) // returns when all are taken
}
