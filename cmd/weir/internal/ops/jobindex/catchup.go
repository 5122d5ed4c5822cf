package jobindex

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitEnds waits until the given shelves have every message that their streams have now, but at most catchUp. It
// returns, for each shelf, how many messages are still unread. It empties a shelf whose stream was replaced.
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
	info, had, err := x.infoOf(ctx, v.shelf, v.name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		x.vanished(v.shelf)
		return 0
	case err != nil:
		x.look(v.shelf)
		return 1 // unknown, so at least one: the answer must not claim to be complete
	}
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

// Bounds of a wait for a server that is behind the shelf.
const (
	lagsFor  = 3 * time.Second
	lagsStep = 50 * time.Millisecond
)

// infoOf returns the state of a shelf's stream. had is the last sequence that the shelf had before infoOf asked,
// because the shelf grows meanwhile. A shelf may follow a replica of the stream that is ahead of the server that
// answers. So if the stream seems to have lost its end, infoOf asks again, for lagsFor at most.
func (x *Index) infoOf(ctx context.Context, s *shelf, name string) (info *jetstream.StreamInfo, had uint64, err error) {
	x.mu.RLock()
	had, created := s.last, s.created
	x.mu.RUnlock()
	for began := time.Now(); ; {
		js, err := x.opts.JetStream.Stream(ctx, name)
		if err != nil {
			return nil, had, err
		}
		info = js.CachedInfo()
		if !created.Equal(info.Created) || info.State.LastSeq >= had || time.Since(began) > lagsFor {
			return info, had, nil
		}
		if !stream.Sleep(ctx, lagsStep) {
			return nil, had, context.Cause(ctx)
		}
	}
}

// distrustLocked empties a shelf, and makes keep build it anew. Until that begins, the index adds nothing to the shelf.
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

// look makes check compare a shelf with its stream soon.
func (x *Index) look(s *shelf) {
	select {
	case x.looks[s] <- struct{}{}:
	default:
	}
}

// isOf reports whether the shelf was built from the stream that info describes. info and had must come from infoOf. A
// stream whose last sequence is below had has lost its end.
func (s *shelf) isOf(info *jetstream.StreamInfo, had uint64) bool {
	return s.begun && s.created.Equal(info.Created) && info.State.LastSeq >= had
}

// forgetDeleted drops letters that were deleted from their stream.
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
	if now.Listable() {
		if now, err = b.Standing(ctx, true); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetDeletedLocked(now)
	return nil
}

// forgetDeletedLocked drops letters that were deleted from their stream. If the server does not list all deleted
// letters, forgetDeletedLocked makes keep build the shelf anew.
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
