package jobindex

import (
	"context"
	"errors"
	"math"
	"slices"

	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitEnds waits until the shelves have what their streams have now, or until catchUp is over. It empties the shelf of a
// stream that is another one by now.
func (x *Index) awaitEnds(ctx context.Context, calls, letters bool) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for _, s := range []struct {
		asked bool
		name  string
		shelf *shelf
	}{{calls, ledger.CallsStream, &x.calls}, {letters, deadletter.Stream, &x.letters}} {
		if !s.asked {
			continue
		}
		js, err := x.opts.JetStream.Stream(ctx, s.name)
		if err != nil {
			continue
		}
		for info := js.CachedInfo(); ; {
			x.mu.Lock()
			if s.shelf.begun && !s.shelf.isOf(info) {
				x.distrustLocked(s.shelf)
			}
			if s.shelf.begun && s.shelf.last >= info.State.LastSeq {
				x.mu.Unlock()
				break
			}
			if x.grown == nil {
				x.grown = make(chan struct{})
			}
			grown := x.grown
			x.mu.Unlock()
			select {
			case <-grown:
			case <-ctx.Done():
				return
			}
		}
	}
}

// distrustLocked empties a shelf, and makes it be built anew. Until it is, nothing is added to it.
func (x *Index) distrustLocked(s *shelf) {
	*s = shelf{}
	select {
	case x.looks[s] <- struct{}{}:
	default:
	}
}

// isOf reports whether a shelf was built from the stream that an information is of, and has not more than it.
func (s *shelf) isOf(info *jetstream.StreamInfo) bool {
	return s.begun && s.created.Equal(info.Created) && info.State.LastSeq >= s.last
}

// forgetDeleted forgets the letters that their stream no longer has.
func (x *Index) forgetDeleted(ctx context.Context) error {
	b, err := deadletter.OpenBrowser(ctx, x.opts.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil
	} else if err != nil {
		return err
	}
	now, err := b.Standing(ctx, false)
	if err != nil {
		return err
	}
	x.mu.RLock()
	same := now.Gone == x.known.Gone && now.First == x.known.First && now.Created.Equal(x.known.Created)
	x.mu.RUnlock()
	if same {
		return nil
	}
	if now, err = b.Standing(ctx, true); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !now.Created.Equal(x.letters.created) {
		return nil // the shelf is about to be emptied
	}
	x.letters.each(math.MaxInt64, func(_ *block, e *entry) bool {
		if _, deleted := slices.BinarySearch(now.Deleted, e.seq); deleted || e.seq < now.First {
			e.listable = false
		}
		return true
	})
	x.known = now
	x.known.Deleted = nil
	return nil
}
