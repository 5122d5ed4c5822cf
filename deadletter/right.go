package deadletter

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/bucket/stream"
)

// rightKey is the key of the lease that a process needs to redrive or purge letters, or to ask an api about them. Two
// such processes at once could both submit one job, so that one submission is queued and the other overflows. Or one
// could submit a job that the other finds processed, so that the job ends twice.
const rightKey = "lease.dead-letters"

// inquirer begins the name of a holder that asks an api about one letter. Such a holder gives the right back after one
// call.
const inquirer = "an inquiry of "

// Inquirer returns the holder's name for an inquiry by an instance of weir.
func Inquirer(instance string) string { return inquirer + instance }

// Right is the right to end letters. Its holder must call Give.
type Right struct {
	lease *lease.Lease
	stop  context.CancelFunc
	ended chan struct{}
}

// TakeRight takes the right. If an inquiry holds the right, TakeRight waits for the end of the inquiry. If a dead
// process holds it, TakeRight waits some seconds until the lease expires. It fails with a *lease.HeldError while any
// other live process holds the right, and when ctx ends. nc is a connection to the server of control.
func TakeRight(ctx context.Context, nc *nats.Conn, control jetstream.KeyValue, holder string) (*Right, error) {
	lock, err := lease.AcquireLease(ctx, nc, control, rightKey, holder)
	var held *lease.HeldError
	for errors.As(err, &held) && strings.HasPrefix(held.Holder, inquirer) && stream.Sleep(ctx, storePause/10) {
		lock, err = lease.AcquireLease(ctx, nc, control, rightKey, holder)
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	right := &Right{lease: lock, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(right.ended)
		_ = lock.Keep(ctx) // Valid reports a lost lease; a lease that could not be given back expires
	}()
	return right, nil
}

// Valid reports whether this process still has the right: no other process can have it yet.
func (r *Right) Valid() bool { return r.lease.Valid() }

// Give gives the right back. It blocks until the server has confirmed that, or could not.
func (r *Right) Give() {
	r.stop()
	<-r.ended
}
