package httpcall

import (
	"net"
	"sync/atomic"
	"testing"

	"weir/ingest"
)

// TestBeginsIsToldBeforeTheFirstByte checks that nothing has reached the api when Begins is called, also on a
// connection that was used before. If Begins says no, nothing ever reaches it, and the next call is not
// hindered.
func TestBeginsIsToldBeforeTheFirstByte(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	for n := range 20 {
		var begun, left atomic.Int32
		may := n%3 != 1
		if err := c.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := len(server.seen())
		r := c.Call(t.Context(), &ingest.Job{Method: "POST", Body: []byte("pay")}, Hooks{
			Begins: func() bool {
				if begun.Add(1); len(server.seen()) != before || left.Load() > 0 {
					t.Error("something was sent before")
				}
				return may
			},
			Left: func() {
				if left.Add(1); begun.Load() == 0 {
					t.Error("the first bytes left before the call began")
				}
			},
		})
		c.Conns.Release()
		if begun.Load() == 0 || may != (left.Load() == 1) || may != r.Sent || may == r.Barred || may != (r.Status == 200) {
			t.Fatalf("call %d: begun %d times, left %d times: %+v", n, begun.Load(), left.Load(), r)
		}
		if may != (len(server.seen()) == before+1) {
			t.Fatalf("call %d, which may be sent: %v; %d requests arrived", n, may, len(server.seen())-before)
		}
	}
}
