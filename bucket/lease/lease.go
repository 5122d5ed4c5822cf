package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/fault"
	"weir/bucket/stream"
)

// Times of a lease. The clocks of different machines are never compared. The holder counts from the moment just before
// its last renewal, and any other process from the moment it last saw the lease change, each on its own clock. The
// holder stops acting one margin before the term ends. The other processes wait for the term and one margin more. So
// clocks may run apart by a fourth, and a process that is stopped between its last look at the lease and its next
// action has two margins left.
const (
	leaseTerm   = 6 * time.Second
	leaseRenew  = 2 * time.Second
	leaseMargin = time.Second
)

// within reports whether, at now, less than d has passed since renewed. It uses the longer of the wall clock's and the
// monotonic clock's time, because the monotonic clock stands still while a machine is suspended.
func within(d time.Duration, renewed, now time.Time) bool {
	return max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))) < d
}

// Lease is a right that only one process may have at a time. Its epoch is the revision of its key.
type Lease struct {
	nc       *nats.Conn
	kv       jetstream.KeyValue
	key      string
	value    []byte
	revision uint64
	renewed  atomic.Pointer[time.Time] // just before the last renewal that succeeded was sent
}

// Valid reports whether the lease is still valid: no other process can have taken it. It is safe for concurrent use.
func (l *Lease) Valid() bool {
	return within(leaseTerm-leaseMargin, *l.renewed.Load(), time.Now()) || fault.Planted(fault.NoFence)
}

// HeldError says that another process holds the lease and renews it.
type HeldError struct{ Holder string }

func (e *HeldError) Error() string {
	return "held by " + e.Holder
}

// ErrLeaseLost says that another process has taken the lease.
var ErrLeaseLost = errors.New("another process has taken the lease")

type leaseValue struct {
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}

// AcquireLease takes a lease that is free, or that its holder has not renewed for a term and a margin. It blocks for
// that long at most, and fails with a *HeldError if the holder renews the lease. nc is a connection to the server of
// kv.
func AcquireLease(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, key, holder string) (*Lease, error) {
	value, err := json.Marshal(leaseValue{holder, time.Now().UTC()})
	if err != nil {
		panic("bucket: a lease that JSON cannot carry: " + err.Error())
	}
	l := &Lease{nc: nc, kv: kv, key: key, value: value}
	for {
		l.renewed.Store(new(time.Now()))
		l.revision, err = kv.Create(ctx, key, value)
		if err == nil {
			fault.Pass(fault.LeaseStored)
			return l, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, fmt.Errorf("lease %s: %w", key, err)
		}
		seen, err := newestOf(ctx, nc, kv.Bucket(), key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("lease %s: %w", key, err)
		case seen.value == nil: // released, but Create asks a replica, which may lag
			if !stream.Sleep(ctx, leaseRenew/4) {
				return nil, context.Cause(ctx)
			}
			continue
		}
		if err := l.outwait(ctx, seen); err != nil {
			return nil, err
		}
		l.renewed.Store(new(time.Now()))
		if l.revision, err = kv.Update(ctx, key, value, seen.revision); err == nil {
			fault.Pass(fault.LeaseStored)
			return l, nil
		}
	}
}

// expired reports whether, at now, a process may take a lease that it has seen unchanged since seen.
func expired(seen, now time.Time) bool { return now.Sub(seen) >= leaseTerm+leaseMargin }

// outwait waits until the seen lease has expired. It fails with a *HeldError if the holder renews the lease meanwhile.
func (l *Lease) outwait(ctx context.Context, seen keyState) error {
	var old leaseValue
	if json.Unmarshal(seen.value, &old) != nil {
		old.Holder = "an unknown replica"
	}
	for start := time.Now(); !expired(start, time.Now()); {
		if !stream.Sleep(ctx, leaseRenew/4) {
			return context.Cause(ctx)
		}
		switch now, err := newestOf(ctx, l.nc, l.kv.Bucket(), l.key); {
		case err != nil:
			return fmt.Errorf("lease %s: %w", l.key, err)
		case now.value == nil:
			return nil // released; Update reports it, and the next try creates the lease
		case now.revision != seen.revision:
			return &HeldError{Holder: old.Holder}
		}
	}
	return nil
}

// Keep renews the lease until ctx ends, and then gives it up. It fails with ErrLeaseLost if the lease is gone.
func (l *Lease) Keep(ctx context.Context) error {
	tick := time.NewTicker(leaseRenew / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return l.release(context.WithoutCancel(ctx))
		}
		if err := l.renew(ctx); errors.Is(err, ErrLeaseLost) && !fault.Planted(fault.NoFence) {
			return err // Keep tries again after any other error; meanwhile Valid reports whether the lease is valid
		}
	}
}

func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew/2)
	defer cancel()
	before := time.Now()
	revision, err := l.kv.Update(ctx, l.key, l.value, l.revision)
	var wrong *jetstream.APIError
	switch {
	case err == nil:
		l.revision = revision
		l.renewed.Store(&before)
		return nil
	case errors.As(err, &wrong) && (wrong.ErrorCode == stream.CodeWrongLastSeq || wrong.ErrorCode == stream.CodeWrongLastSeqConst):
		return l.recheck(ctx)
	}
	return fmt.Errorf("renew lease %s: %w", l.key, err)
}

// recheck finds out whether the lease was lost, or the answer to a stored renewal was lost.
func (l *Lease) recheck(ctx context.Context) error {
	now, err := newestOf(ctx, l.nc, l.kv.Bucket(), l.key)
	if err != nil {
		return fmt.Errorf("lease %s: %w", l.key, err)
	}
	if string(now.value) == string(l.value) {
		l.revision = now.revision
		return fmt.Errorf("lease %s: an earlier renewal was stored, but its answer was lost; the next renewal starts from it", l.key)
	}
	return ErrLeaseLost
}

func (l *Lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	if err := l.kv.Delete(ctx, l.key, jetstream.LastRevision(l.revision)); err != nil {
		return fmt.Errorf("give up lease %s: %w", l.key, err)
	}
	return nil
}
