package httpcall

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"
)

// TestBeginsIsToldBeforeTheFirstByte checks that nothing has reached the api when Begins is called, also on a
// connection that was used before. If Begins says no, nothing ever reaches it, and the next call is not
// hindered.
func TestBeginsIsToldBeforeTheFirstByte(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	for n := range 20 {
		var begun, left atomic.Int32
		var since atomic.Pointer[time.Time]
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
				since.Store(new(time.Now()))
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
		if may && r.Started.Before(*since.Load()) {
			t.Errorf("call %d started before it began", n)
		}
		if may != (len(server.seen()) == before+1) {
			t.Fatalf("call %d, which may be sent: %v; %d requests arrived", n, may, len(server.seen())-before)
		}
	}
}

// TestRightIsAskedLast checks that a call asks for its right after it has begun, when nothing is left to wait for. A
// call without it sends nothing and takes no further connection, and Replace dials for the one it has lost.
func TestRightIsAskedLast(t *testing.T) {
	const idle = 3
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	for range idle {
		if err := c.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var calls sync.WaitGroup
	var together sync.WaitGroup
	together.Add(idle)
	for range idle {
		calls.Go(func() {
			c.Call(t.Context(), &ingest.Job{Method: "GET"}, Hooks{Begins: func() bool { together.Done(); together.Wait(); return true }})
		})
	}
	await.Return(t, "calls at the same time", calls.Wait)
	for _, method := range []string{"GET", "POST"} {
		var begun atomic.Bool
		before := c.Conns.counts()
		r := c.Call(t.Context(), &ingest.Job{Method: method}, Hooks{
			MayWrite: func() bool { return !begun.Load() }, Begins: func() bool { begun.Store(true); return true },
		})
		if r.Sent || !r.Barred || !errors.Is(r.Err, errBarred) || len(server.seen()) != idle {
			t.Errorf("%s without the right: %+v; %d requests arrived", method, r, len(server.seen())-idle)
		}
		before.alive--
		await.Until(t, "one connection less", func() bool { return c.Conns.counts() == before })
		if err := c.Conns.Replace(t.Context()); err != nil {
			t.Fatal(err)
		}
		before.alive, before.spare = before.alive+1, before.spare+1
		if got := c.Conns.counts(); got != before {
			t.Errorf("after the connection was replaced: %+v, not %+v", got, before)
		}
	}
	for range idle {
		c.Conns.Release()
	}
}
