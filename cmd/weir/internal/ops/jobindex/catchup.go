package jobindex

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitEnds waits until a question's shelves have what their streams have now, or until catchUp is over. It returns how
// many messages of each were left. It empties the shelf of a stream that is another one by now.
func (x *Index) awaitEnds(ctx context.Context, asked []view) []uint64 {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	left := make([]uint64, len(asked))
	var waiting sync.WaitGroup
	for i, v := range asked {
		waiting.Go(func() { left[i] = x.awaitEnd(ctx, v) })
	}
	waiting.Wait()
	return left
}

func (x *Index) awaitEnd(ctx context.Context, v view) (behind uint64) {
	had := x.lastOf(v.shelf)
	js, err := x.opts.JetStream.Stream(ctx, v.name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		x.vanished(v.shelf)
		return 0
	case err != nil:
		return 1 // at least one may be: an answer must not claim to be whole
	}
	info := js.CachedInfo()
	x.mu.Lock()
	if v.shelf.begun && !v.shelf.isOf(info, had) {
		x.distrustLocked(v.shelf)
	}
	x.trimLocked(v.shelf, info)
	x.mu.Unlock()
	for {
		x.mu.Lock()
		behind = info.State.LastSeq - min(v.shelf.last, info.State.LastSeq)
		if x.grown == nil {
			x.grown = make(chan struct{})
		}
		begun, grown := v.shelf.begun, x.grown
		x.mu.Unlock()
		if begun && behind == 0 {
			return 0
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return behind
		}
	}
}

// lastOf returns the last sequence that a shelf has. Ask it before the stream: meanwhile the shelf grows.
func (x *Index) lastOf(s *shelf) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return s.last
}

// distrustLocked empties a shelf, and makes it be built anew. Until it is, nothing is added to it.
func (x *Index) distrustLocked(s *shelf) {
	x.emptyLocked(s, shelf{}, time.Time{})
	x.look(s)
}

// vanished empties the shelf of a stream that does not exist.
func (x *Index) vanished(s *shelf) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.distrustLocked(s)
	s.absent = true
	x.tellLocked()
}

// look makes a shelf be compared with its stream soon.
func (x *Index) look(s *shelf) {
	select {
	case x.looks[s] <- struct{}{}:
	default:
	}
}

// isOf reports whether a shelf was built from the stream that an information is of. had is the last sequence that the
// shelf had before the information was asked for: a stream with less has lost its end.
func (s *shelf) isOf(info *jetstream.StreamInfo, had uint64) bool {
	return s.begun && s.created.Equal(info.Created) && info.State.LastSeq >= had
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
	same := !x.late && now.Gone == x.standing.Gone && now.First == x.standing.First && now.Created.Equal(x.standing.Created)
	x.mu.RUnlock()
	if same {
		return nil
	}
	if now, err = b.Standing(ctx, true); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetDeletedLocked(now)
	return nil
}

// forgetDeletedLocked forgets the letters that are not in their stream. If more letters were deleted than the server
// lists, the shelf is built anew.
func (x *Index) forgetDeletedLocked(now deadletter.Standing) {
	if !now.Created.Equal(x.letters.created) {
		return // the shelf is about to be emptied
	}
	before := x.standing
	x.standing, x.late = now, false
	x.standing.Deleted = nil
	if !now.Listable() {
		if now.Gone != before.Gone || now.First != before.First {
			x.distrustLocked(&x.letters)
		}
		return
	}
	x.letters.each(math.MaxInt64, func(_ *block, e *entry) bool {
		if _, deleted := slices.BinarySearch(now.Deleted, e.seq); deleted || e.seq < now.First {
			e.listable = false
		}
		return true
	})
}
