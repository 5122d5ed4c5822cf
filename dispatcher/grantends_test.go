package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
	"weir/ingest/await"
)

// lateStore is a store that fails until it is up.
type lateStore struct {
	Store
	failed chan struct{}
	up     atomic.Bool
}

func (s *lateStore) Settle(context.Context, []bucket.Use) error {
	if s.up.Load() {
		return nil
	}
	select {
	case s.failed <- struct{}{}:
	default:
	}
	return errors.New("down")
}

// TestLastWordsArrive checks that a stop warns of unreported ends of grants only if its last try fails, too, and once.
func TestLastWordsArrive(t *testing.T) {
	for arrive, want := range map[bool]int{true: 0, false: 1} {
		store := &lateStore{failed: make(chan struct{}, 1)}
		var log bytes.Buffer
		g := &grantEnds{
			store: store, clock: schedule.OtherClock, log: slog.New(slog.NewTextHandler(&log, nil)), heard: func([]bucket.Use) {}, tell: make(chan struct{}, 1),
		}
		end := g.run(t.Context())
		g.settle(t.Context(), []bucket.Use{{Key: "k", Grant: bucket.Grant{Serial: 1}}})
		await.Receive(t, "a failed report", store.failed)
		store.up.Store(arrive)
		await.Return(t, "the end", end)
		if n := strings.Count(log.String(), "stopped before"); n != want {
			t.Errorf("the last try succeeds: %v, and %d warnings: %s", arrive, n, log.String())
		}
	}
}

// TestHeldSlotsWaitOnce checks that polls of operations do not add up while the store of slots does not answer, and that
// a slot which is held again after its end is held.
func TestHeldSlotsWaitOnce(t *testing.T) {
	g := &grantEnds{clock: schedule.OtherClock, log: slog.New(slog.DiscardHandler), tell: make(chan struct{}, 1)}
	hold := func(serial int64) bucket.Use {
		return bucket.Use{Key: "k", Grant: bucket.Grant{Serial: serial}, Hold: time.Hour}
	}
	for range 1000 {
		g.settle(t.Context(), []bucket.Use{hold(-1)})
		g.settle(t.Context(), []bucket.Use{hold(-2)})
	}
	g.settle(t.Context(), []bucket.Use{{Key: "k", Grant: bucket.Grant{Serial: 64}}, {Key: "k", Grant: bucket.Grant{Serial: 65}}})
	if len(g.ended) != 4 {
		t.Fatalf("%d ends wait", len(g.ended))
	}
	g.settle(t.Context(), []bucket.Use{{Key: "k", Grant: bucket.Grant{Serial: -1}}})
	g.settle(t.Context(), []bucket.Use{hold(-1)})
	if last := g.ended[len(g.ended)-1]; len(g.ended) != 6 || last.Grant.Serial != -1 || last.Hold == 0 {
		t.Errorf("%d ends wait, the last is %+v", len(g.ended), last)
	}
}
