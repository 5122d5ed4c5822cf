package servers

import (
	"io"
	"net"
	"sync"
	"testing"

	"weir/ingest/await"
)

// Relay passes TCP connections on until it is cut. Then the present connections break, and it takes no others.
type Relay struct {
	listener net.Listener
	mu       sync.Mutex // guards conns
	conns    []net.Conn
}

// NewRelay starts a relay to an address. It ends with the test.
func NewRelay(t *testing.T, to string) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: listener}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close() // the caller sees it
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, onward)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{from, onward}, {onward, from}} {
				passing.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // it ends when either side closes
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { r.Cut(); await.Return(t, "the end of a relay", passing.Wait) })
	return r
}

// Addr returns the address that the relay listens on.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Cut cuts the relay for good.
func (r *Relay) Cut() {
	_ = r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		_ = conn.Close() // it may have ended
	}
}
