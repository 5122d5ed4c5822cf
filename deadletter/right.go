package deadletter

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/bucket/stream"
)

// rightKey is the lease of whoever redrives, purges, or asks an api about letters. Two at once could hand a job in for one of them to be
// queued and for the other to overflow, or hand one in that the other finds processed, and so end it twice.
const rightKey = "lease.dead-letters"

// inquirer begins the name of who holds the right for one letter that an api is asked about: that takes as long as one call.
const inquirer = "an inquiry of "

// Inquirer names who asks about a letter.
func Inquirer(instance string) string { return inquirer + instance }

// Right is the right to end letters. It is given back.
type Right struct {
	lease *lease.Lease
	stop  context.CancelFunc
	ended chan struct{}
}

// TakeRight waits for the right of a process that has died, which takes some seconds, and for an inquiry that is under way, as long as ctx
// lets it. It fails with a *lease.HeldError while anybody else who is alive holds it.
func TakeRight(ctx context.Context, control jetstream.KeyValue, holder string) (*Right, error) {
	lock, err := lease.AcquireLease(ctx, control, rightKey, holder)
	var held *lease.HeldError
	for errors.As(err, &held) && strings.HasPrefix(held.Holder, inquirer) && stream.Sleep(ctx, storePause/10) {
		lock, err = lease.AcquireLease(ctx, control, rightKey, holder)
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	right := &Right{lease: lock, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(right.ended)
		_ = lock.Keep(ctx) // Valid tells what matters; what cannot be given back ends by itself
	}()
	return right, nil
}

// Valid reports whether nobody else can have the right yet.
func (r *Right) Valid() bool { return r.lease.Valid() }

// Give gives the right back. It blocks until that is stored, or cannot be.
func (r *Right) Give() {
	r.stop()
	<-r.ended
}
