package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// lettersLease is the lease of whoever redrives or purges. Two at once could publish a job for one of them to be queued
// and for the other to overflow, and so end it twice.
const lettersLease = "lease.dead-letters"

// letterRight is the right to redrive and purge.
type letterRight struct {
	lease *lease.Lease
	stop  context.CancelFunc
	ended chan struct{}
}

// takeLetterRight waits for the right of a process that has died, which takes some seconds, and refuses while one is
// alive. give it back.
func takeLetterRight(ctx context.Context, c *connect.Connection) (*letterRight, error) {
	kv, err := c.JetStream.KeyValue(ctx, connect.ControlBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, cli.NotFound(fmt.Errorf("there is no key-value bucket %s: weir has not run on this server", connect.ControlBucket))
	} else if err != nil {
		return nil, c.Explain(err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "somewhere"
	}
	lock, err := lease.AcquireLease(ctx, kv, lettersLease, fmt.Sprintf("%s on %s, process %d", cli.User(), host, os.Getpid()))
	var held *lease.HeldError
	if errors.As(err, &held) {
		return nil, cli.Refused(fmt.Errorf("%s redrives or purges dead letters now: wait until that has ended", held.Holder))
	} else if err != nil {
		return nil, c.Explain(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	right := &letterRight{lease: lock, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(right.ended)
		_ = lock.Keep(ctx) // Valid tells what matters; what cannot be given back ends by itself
	}()
	return right, nil
}

// give gives the right back.
func (r *letterRight) give() {
	r.stop()
	<-r.ended
}
