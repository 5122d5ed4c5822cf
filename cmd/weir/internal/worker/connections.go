package worker

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// keepOpen ends the worker when nats.go has given up a connection: it makes a lost one again, but not one that the server ended with an
// error of its own, such as a control line over its bound. Nothing can be stored from then on, nor called: the next start makes the
// connection again. closeNow closes it in order.
func (l *lifetime) keepOpen(nc *nats.Conn, what string) (closeNow func() error) {
	closed := make(chan struct{}, 1)
	note := func(*nats.Conn) {
		select {
		case closed <- struct{}{}:
		default: // it is noted
		}
	}
	nc.SetClosedHandler(note)
	if nc.IsClosed() { // before anybody could hear of it
		note(nc)
	}
	l.lowerGo(func() error {
		select {
		case <-closed:
			return fmt.Errorf("the NATS server has ended %s for good: weir can do nothing without it and ends, for its supervisor to start it anew: %w", what, nc.LastError())
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

// Alive reports why the worker can do nothing any more and is about to end; nil while it can, also while it stops as it was asked to.
func (l *lifetime) Alive() error {
	if err := l.broken.Load(); err != nil {
		return *err
	}
	return nil
}
