package ownership

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"weir/bucket"
	"weir/bucket/lease"
)

// plainHost is a Host of one partition that only notes what it is asked.
type plainHost struct {
	lost atomic.Int64 // number of calls of Lose
}

func (*plainHost) Partitions() map[string]int                     { return map[string]int{"a": 1} }
func (*plainHost) Rules() map[string]bucket.Rules                 { return nil }
func (*plainHost) Close(context.Context, lease.PartitionID) error { return nil }
func (h *plainHost) Lose(lease.PartitionID)                       { h.lost.Add(1) }
func (*plainHost) LoseAll(*lease.Membership)                      {}
func (*plainHost) Contact(func(api string) Others) (none Contact) { return none }

func (*plainHost) Open(context.Context, context.Context, lease.PartitionID, Tenure) error {
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
		<-m.room
	}
	m.doing.Wait()
	if n := host.lost.Load(); n != 2 {
		t.Errorf("%d of 2 actions ran", n)
	}
}
