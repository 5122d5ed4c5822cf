package worker

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// keepOpen ends the worker when nats.go has given up a connection. nats.go restores a lost connection, but not one that
// the server ended with an error, such as a control line that was too long. Without the connection weir can neither
// store nor call; the next start connects again. closeNow closes the connection without ending the worker.
func (l *lifetime) keepOpen(nc *nats.Conn, what string) (closeNow func() error) {
	closed := make(chan struct{}, 1)
	note := func(*nats.Conn) {
		select {
		case closed <- struct{}{}:
		default: // an earlier failure is recorded
		}
	}
	nc.SetClosedHandler(note)
	if nc.IsClosed() { // closed before the handler was set
		note(nc)
	}
	l.lowerGo(func() error {
		select {
		case <-closed:
			return fmt.Errorf("the NATS server closed %s, and it will not reconnect: weir exits so that its supervisor restarts it: %w", what, nc.LastError())
		case <-l.base.Done():
			return nil
		}
	})
	return func() error {
		nc.SetClosedHandler(nil)
		nc.Close()
		return nil
	}
}

// Alive returns why the worker cannot go on and is about to end. It returns nil while the worker works, and during an
// ordinary stop.
func (l *lifetime) Alive() error {
	if err := l.broken.Load(); err != nil {
		return *err
	}
	return nil
}
