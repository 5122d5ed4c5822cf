package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/ingest/await"
)

// TestHoldingsNear checks that jobs get room in their order, that a job larger than the whole room gets in, and that a
// job that gives up leaves nothing behind.
func TestHoldingsNear(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := NewHoldings(nearShare * 100) // room for 100 bytes near their call
	first, second := h.TryNear(60), h.TryNear(40)
	if first == nil || second == nil || h.TryNear(1) != nil {
		t.Fatal("100 bytes do not have room for 60 and 40, or for more")
	}
	type let struct {
		who   string
		space *Space
		err   error
	}
	came := make(chan let, 4)
	ask := func(ctx context.Context, who string, size int64) {
		ready := len(h.near.waiting) // no other goroutine uses h now
		go func() {
			space, err := h.Near(ctx, size)
			came <- let{who, space, err}
		}()
		for waiting := ready; waiting == ready; {
			h.near.mu.Lock()
			waiting = len(h.near.waiting)
			h.near.mu.Unlock()
			if ctx.Err() != nil {
				t.Fatal("nobody waits for room who should")
			}
		}
	}
	impatient, giveUp := context.WithCancelCause(ctx)
	ask(ctx, "huge", 500)
	ask(impatient, "impatient", 10)
	ask(ctx, "small", 10)
	second.Resize(5)
	if h.TryNear(1) != nil {
		t.Error("somebody got room before those who waited for it")
	}
	gone := errors.New("it lost its patience")
	giveUp(gone)
	if l := await.Receive(t, "the impatient to give up", came); l.who != "impatient" || !errors.Is(l.err, gone) {
		t.Fatalf("%s came with %v, want impatient to give up", l.who, l.err)
	}
	first.Release()
	first.Release()
	second.Release()
	huge := await.Receive(t, "room for the huge", came)
	if huge.who != "huge" || huge.err != nil {
		t.Fatalf("%s came with %v, want huge: it has waited longest", huge.who, huge.err)
	}
	huge.space.Release()
	small := await.Receive(t, "room for the small", came)
	if small.who != "small" || small.err != nil {
		t.Fatalf("%s came with %v, want small", small.who, small.err)
	}
	small.space.Resize(30)
	if _, _, near, _ := h.Held(); near != 30 {
		t.Errorf("%d bytes are held, want the 30 that the last turned out to be", near)
	}
	small.space.Release()
	if _, _, near, _ := h.Held(); near != 0 {
		t.Errorf("%d bytes are held by nobody", near)
	}
}

// TestHoldingsKeep checks that no queue gets the whole room for kept messages.
func TestHoldingsKeep(t *testing.T) {
	h := NewHoldings(keptShare * 1000)
	keepAll := func() (holds int64) {
		for h.Keep(1, holds) {
			holds++
		}
		return holds
	}
	first := keepAll()
	second := keepAll()
	third := keepAll()
	if first != 500 || second != 250 || third != 125 {
		t.Errorf("three deep queues keep %d, %d and %d bytes of 1000, want half of what is left each time", first, second, third)
	}
	h.Drop(first)
	if again := keepAll(); again < first/2 {
		t.Errorf("of %d bytes that were given back another queue gets %d", first, again)
	}
}

// TestHoldingsEnter checks that Holdings refuse a job that does not fit, a job of a new key if as many keys wait as
// fit, and every job while the heap is full.
func TestHoldingsEnter(t *testing.T) {
	h := NewHoldings(intakeShare * 1000)
	if err := h.enter(5000, true); err != nil {
		t.Errorf("the only job is refused, however large: %v", err)
	}
	if h.enter(1, true) == nil {
		t.Error("a job is let in beside one that takes all the room")
	}
	h.intake.give(5000)
	h.keys.Store(h.mostKeys)
	if h.enter(1, true) == nil {
		t.Error("a new key is let in where no more fit")
	}
	if err := h.enter(1, false); err != nil {
		t.Errorf("a job of a key that has some is refused for the keys: %v", err)
	}
	h.SetTight(true)
	if h.enter(1, false) == nil {
		t.Error("a job is let in while the heap is full")
	}
	h.SetTight(false)
	if err := h.enter(1, false); err != nil {
		t.Error(err)
	}
}

// TestHoldingsOpens checks that a queue that was filled under a limit opens under the same limit, and that otherwise
// the error says how much memory the queue needs.
func TestHoldingsOpens(t *testing.T) {
	h := NewHoldings(400 << 20)
	if err := h.Opens(h.mostKeys, 2*h.mostKeys); err != nil {
		t.Errorf("as many keys as are let in: %v", err)
	}
	if err := h.Opens(5_000_000, 5_000_000); err == nil {
		t.Error("five million keys are held in 400 MiB")
	}
}
