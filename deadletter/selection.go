package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"weir/bucket/stream"
)

// Selection says which letters an operator chose: those in Seqs or, if it is empty, those that Filter chooses.
type Selection struct {
	Filter Filter
	Seqs   []uint64
}

// MissingError reports that a letter that the operator named does not exist.
type MissingError struct{ Seq uint64 }

func (e *MissingError) Error() string {
	return fmt.Sprintf("there is no dead letter %d: it never was, or it was redriven, purged or too old", e.Seq)
}

// Scope is a selection with a fixed end. It excludes later letters, so a redrive never meets the letters that it
// causes.
type Scope struct {
	browser *Browser
	filter  Filter
	seqs    []uint64 // sorted; nil: those that the filter chooses
	walk    span
}

// Scope fixes a selection to the letters that exist now. It fails with a *MissingError if a letter in Seqs does not
// exist.
func (b *Browser) Scope(ctx context.Context, s Selection) (*Scope, error) {
	scope := &Scope{browser: b, filter: s.Filter}
	if len(s.Seqs) == 0 {
		walk, err := b.span(ctx, s.Filter)
		scope.walk = walk
		return scope, err
	}
	scope.seqs = slices.Compact(slices.Sorted(slices.Values(s.Seqs)))
	for _, seq := range scope.seqs {
		if _, err := b.Get(ctx, seq); errors.Is(err, ErrNoLetter) {
			return nil, &MissingError{seq}
		} else if err != nil {
			return nil, err
		}
	}
	return scope, nil
}

// maxSeq is greater than the sequence of every letter.
const maxSeq = math.MaxUint64

// between returns the scope's letters whose sequences are at least from and less than before.
func (s *Scope) between(from, before uint64) *Scope {
	r := *s
	r.walk = span{first: max(s.walk.first, from), last: min(s.walk.last, before-1)}
	if s.seqs != nil {
		first, _ := slices.BinarySearch(s.seqs, from)
		end, _ := slices.BinarySearch(s.seqs, before)
		r.seqs = s.seqs[first:end]
	}
	return &r
}

// Parts says which parts of letters to read.
type Parts int

// The parts.
const (
	HeadersOnly Parts = iota
	Whole
)

// Bounds of what one chunk holds in memory.
const (
	chunkLetters = 2048
	chunkBytes   = 8 << 20
	headerChunk  = 4096 // letters without bodies
)

// Walk reads the letters of a scope in order, chunk by chunk. It may pause between two chunks for any time, because it
// holds nothing on the server.
type Walk struct {
	scope *Scope
	parts Parts
	most  int    // letters in a chunk; 0: the bounds of a chunk
	next  uint64 // sequence
	at    int    // index in the scope's seqs
	of    uint64 // letters that matched the filter's subject when the walk began
	read  uint64 // letters read so far
	begun bool
}

// Walk returns a walk from the beginning of the scope.
func (s *Scope) Walk(parts Parts) *Walk { return &Walk{scope: s, parts: parts, next: s.walk.first} }

// Progress returns how many letters were read, and about how many there are to read.
func (w *Walk) Progress() (read, of uint64) { return w.read, w.of }

// Chunk returns the next letters: up to 2048, or 4096 without bodies, and fewer if their headers and bodies reach 8
// MiB. It omits letters that are gone. It returns none at the end.
func (w *Walk) Chunk(ctx context.Context) ([]Kept, error) {
	if w.scope.seqs != nil {
		return w.named(ctx)
	}
	browser, filter, walk := w.scope.browser, w.scope.filter, w.scope.walk
	if !w.begun && w.next <= walk.last {
		from, err := browser.countFrom(ctx, filter, w.next)
		if err != nil {
			return nil, err
		}
		w.begun, w.of = true, from-min(from, walk.later)
	}
	most, ahead := w.atMost(), 0
	if w.parts == Whole {
		ahead = min(browser.wholeBatch(), most)
	}
	var chunk []Kept
	size, read, next := 0, uint64(0), walk.last+1
	err := browser.read(ctx, filter, span{first: w.next, last: walk.last}, w.parts, ahead, func(k Kept) error {
		read++
		if filter.chooses(&k) {
			chunk, size = append(chunk, k), size+len(k.Body)+stream.HeaderBytes(k.Header)
		}
		if len(chunk) == most || size >= chunkBytes {
			next = k.Seq + 1
			return stream.ErrEnough
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.next, w.read = next, w.read+read
	return chunk, nil
}

// atMost returns the maximum number of letters in a chunk.
func (w *Walk) atMost() int {
	most := chunkLetters
	if w.parts == HeadersOnly {
		most = headerChunk
	}
	if w.most > 0 {
		most = min(most, w.most)
	}
	return most
}

// named returns the next letters of a scope with numbers. It reads them one by one.
func (w *Walk) named(ctx context.Context) ([]Kept, error) {
	w.of = uint64(len(w.scope.seqs))
	var chunk []Kept
	for size, most := 0, w.atMost(); w.at < len(w.scope.seqs) && len(chunk) < most && size < chunkBytes; w.at++ {
		w.next = w.scope.seqs[w.at] + 1
		k, err := w.scope.browser.Get(ctx, w.scope.seqs[w.at])
		if errors.Is(err, ErrNoLetter) {
			continue
		} else if err != nil {
			return nil, err
		}
		w.read++
		chunk, size = append(chunk, k), size+len(k.Body)+stream.HeaderBytes(k.Header)
	}
	return chunk, nil
}

// mostAhead bounds the whole letters that are on their way at once.
const mostAhead = 512

// wholeBatch returns how many whole letters may be on their way at once: about four chunks of bytes, if each letter has
// the maximum size of a message.
func (b *Browser) wholeBatch() int {
	return int(min(max(1, 4*chunkBytes/max(1, b.js.Conn().MaxPayload())), mostAhead))
}
