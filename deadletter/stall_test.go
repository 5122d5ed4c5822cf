package deadletter_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/deadletter"
)

// stalling is a dialer whose connections stall for two seconds, once, when one of them reads a certain text.
type stalling struct {
	text string
	done atomic.Bool
}

func (s *stalling) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &stallingConn{c, s}, err
}

type stallingConn struct {
	net.Conn
	by *stalling
}

func (c *stallingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte(c.by.text)) && c.by.done.CompareAndSwap(false, true) {
		<-time.After(2 * time.Second)
	}
	return n, err
}

// TestNothingIsSkippedOnAStall checks that a reader passes every letter even if the connection stalls while letters are
// on their way.
func TestNothingIsSkippedOnAStall(t *testing.T) {
	t.Parallel()
	const letters = 3000
	ns := natstest.Start(t, t.TempDir(), 0)
	js := natstest.Connect(t, ns)
	_, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 30, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 0, letters, letters+1)
	read := map[string]func(b *deadletter.Browser, take func(deadletter.Kept)) error{
		"each": func(b *deadletter.Browser, take func(deadletter.Kept)) error {
			return b.Each(t.Context(), deadletter.Filter{}, func(k deadletter.Kept, _, _ uint64) error { take(k); return nil })
		},
		"after": func(b *deadletter.Browser, take func(deadletter.Kept)) error {
			return b.After(t.Context(), 0, letters, func(k deadletter.Kept) error { take(k); return nil })
		},
		"walk": func(b *deadletter.Browser, take func(deadletter.Kept)) error {
			scope, err := b.Scope(t.Context(), deadletter.Selection{})
			if err != nil {
				return err
			}
			for walk := scope.Walk(deadletter.Whole); ; {
				chunk, err := walk.Chunk(t.Context())
				if err != nil || len(chunk) == 0 {
					return err
				}
				for _, k := range chunk {
					take(k)
				}
			}
		},
	}
	for name, read := range read {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stall := &stalling{text: "job-700"}
			nc, err := nats.Connect(ns.ClientURL(), nats.SetCustomDialer(stall))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			b, err := deadletter.OpenBrowser(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			next := 0
			err = read(b, func(k deadletter.Kept) {
				if want := fmt.Sprint("job-", next); k.JobID != want {
					t.Fatalf("%s comes where %s is next", k.JobID, want)
				}
				next++
			})
			if err != nil || next != letters {
				t.Errorf("%d letters of %d were read: %v", next, letters, err)
			}
			if !stall.done.Load() {
				t.Error("the connection did not stall")
			}
		})
	}
}
