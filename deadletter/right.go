package deadletter

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/bucket/stream"
)

// rightKey is the key of the lease that a process needs to redrive, to purge, or to ask an api about letters. Two at
// once could submit one job twice, so that one is queued and the other overflows. Or one could submit a job that the
// other finds processed, and so end it twice.
const rightKey = "lease.dead-letters"

// inquirer begins the holder's name if the right is held to ask an api about one letter. That takes as long as one
// call.
const inquirer = "an inquiry of "

// Inquirer returns the holder's name for an inquiry about a letter.
func Inquirer(instance string) string { return inquirer + instance }

// Right is the right to end letters. Its owner must call Give.
type Right struct {
	lease *lease.Lease
	stop  context.CancelFunc
	ended chan struct{}
}

// TakeRight takes the right. It waits until the lease of a dead process expires, which takes some seconds, and for the
// end of an inquiry, until ctx ends. It fails with a *lease.HeldError while any other live process holds the right.
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
		_ = lock.Keep(ctx) // Valid reports a lost lease; a lease that cannot be given back expires
	}()
	return right, nil
}

// Valid reports whether no other process can have the right yet.
func (r *Right) Valid() bool { return r.lease.Valid() }

// Give gives the right back. It blocks until that is stored or has failed.
func (r *Right) Give() {
	r.stop()
	<-r.ended
}
