package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// plainHost is a Host of one partition that only notes what it is asked.
type plainHost struct {
	lost   atomic.Int64  // number of calls of Lose
	open   chan struct{} // gets a value for every Open
	all    atomic.Bool   // LoseAll was called
	closes error         // what Close returns
}

func (*plainHost) Partitions() map[string]int                       { return map[string]int{"a": 1} }
func (*plainHost) Rules() map[string]bucket.Rules                   { return nil }
func (h *plainHost) Close(context.Context, lease.PartitionID) error { return h.closes }
func (h *plainHost) Lose(lease.PartitionID)                         { h.lost.Add(1) }
func (h *plainHost) LoseAll(*lease.Membership)                      { h.all.Store(true) }
func (*plainHost) Contact(func(api string) Others) (none Contact)   { return none }

func (h *plainHost) Open(context.Context, context.Context, lease.PartitionID, Tenure) error {
	h.open <- struct{}{}
	return nil
}

// TestActionComesWhileOneWaits checks that an action may come for a partition while an earlier one waits to run. The
// race detector sees whether both use the queue at once.
func TestActionComesWhileOneWaits(t *testing.T) {
	host := &plainHost{}
	m := NewManager(ManagerOptions{Host: host, Log: slog.New(slog.DiscardHandler)})
	for range maxActions {
		m.room <- struct{}{}
	}
	lose := action{do: actionLose, part: lease.PartitionID{API: "a"}}
	m.do(t.Context(), t.Context(), nil, lose)
	m.do(t.Context(), t.Context(), nil, lose)
	for range maxActions {
		await.Receive(t, "a slot that was taken", m.room)
	}
	await.Return(t, "the actions", m.doing.Wait)
	if n := host.lost.Load(); n != 2 {
		t.Errorf("%d of 2 actions ran", n)
	}
}

// TestFailedCloseLeavesNoClaim checks that a partition that could not be closed in order is dropped and then released.
// If its claim stayed, no replica would work it.
func TestFailedCloseLeavesNoClaim(t *testing.T) {
	now := time.Now()
	o, p := owning(t, now)
	o.targets = map[lease.PartitionID]string{p: "other"}
	actions := o.plan(now)
	wants(t, actions, actionClose)
	host := &plainHost{closes: errors.New("for the test")}
	m := NewManager(ManagerOptions{Host: host, Log: slog.New(slog.DiscardHandler)})
	m.o = o
	m.execute(t.Context(), t.Context(), nil, actions[0])
	wants(t, o.plan(time.Now().Add(time.Minute)), actionRelease)
	if n := host.lost.Load(); n != 1 {
		t.Errorf("it was dropped %d times, want once", n)
	}
}

// TestLeaseOutlivesCalls checks that a replica that must stop because of an older rival ends its lease only if it has
// opened no partition. Otherwise its calls may still run, and no other replica may take them over before the lease
// has lapsed.
func TestLeaseOutlivesCalls(t *testing.T) {
	for _, opened := range []bool{true, false} {
		t.Run(fmt.Sprintf("opened=%t", opened), func(t *testing.T) {
			r, err := lease.OpenRegistry(t.Context(), natstest.JetStream(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			host := &plainHost{open: make(chan struct{}, 1)}
			m := NewManager(ManagerOptions{
				Registry: r, Instance: "younger", Host: host, Log: slog.New(slog.DiscardHandler),
				MayBegin: func(context.Context) error { return nil },
			})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			older := lease.Member{Instance: "older", SharedBy: "redis", Joined: 1}
			ended := make(chan error, 1)
			if opened { // the watch shows the rival late
				go func() { ended <- m.Run(ctx, ctx) }()
				await.Receive(t, "the partition to open", host.open)
				for revision := range uint64(2) { // with the second one it has renewed
					m.tell(func(o *state) {
						o.see(lease.Sighting{Session: "older", Member: &older, Revision: revision}, time.Now())
					})
				}
			} else {
				rival, err := r.Join(ctx, older)
				if err != nil {
					t.Fatal(err)
				}
				go func() { _ = rival.Keep(ctx, func(*lease.Member) {}, func() {}) }()
				go func() { ended <- m.Run(ctx, ctx) }()
			}
			if err := await.Receive(t, "the end of the younger replica", ended); err == nil || !strings.Contains(err.Error(), "older") {
				t.Errorf("it ended with %v", err)
			}
			members, err := r.Members(ctx)
			if err != nil {
				t.Fatal(err)
			}
			holds := slices.ContainsFunc(members, func(s lease.Sighting) bool { return s.Member.Instance == "younger" })
			if holds != opened || !host.all.Load() {
				t.Errorf("it holds its lease: %t; it has dropped its partitions: %t", holds, host.all.Load())
			}
		})
	}
}
