package deadview

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"weir/deadletter"
)

// Bounds of a tally: how many letters it remembers, of 24 bytes each, and how long it remembers them if no question
// comes.
const (
	mostTallied = 1_000_000
	mostCauses  = 10_000 // also bounds causes that no existing letter has any more
	tallyRests  = 10 * time.Minute
)

// errTooMany reports that there are more letters or causes than a tally may remember.
var errTooMany = errors.New("more letters than the count keeps in memory")

// Tally counts letters by cause, for many readers. It remembers the cause of each letter, so the next question reads
// only newer letters. It is safe for concurrent use; while one call reads letters, other calls wait. Close ends the
// tally.
type Tally struct {
	turn    chan struct{} // holds a value while a call uses the fields below
	created time.Time     // of the stream that was read
	last    uint64        // last sequence read
	letters []tallied     // by sequence
	causes  []Cause
	index   map[Cause]uint32
	rest    *time.Timer // forgets everything after tallyRests without a question
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{turn: make(chan struct{}, 1)} }

// tallied is one remembered letter.
type tallied struct {
	seq    uint64
	stored int64 // Unix time in nanoseconds
	cause  uint32
}

// Count counts the letters that a filter selects, by cause, the most frequent cause first. It blocks while it reads
// letters. Usually it reads only the headers of letters that it has not read yet. It reads the headers of all letters
// if the filter needs more than the tally remembers (a key, a job, a page), or if there are more than mostTallied
// letters.
func (t *Tally) Count(ctx context.Context, b *deadletter.Browser, f deadletter.Filter) ([]*Count, error) {
	if f.Key != "" || f.Job != "" || f.Before != 0 {
		return CountByCause(ctx, b, f, nil)
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := t.catchUpLocked(ctx, b); errors.Is(err, errTooMany) {
		t.forgetLocked()
		return CountByCause(ctx, b, f, nil)
	} else if err != nil {
		return nil, err
	}
	return t.countLocked(&f), nil
}

// catchUpLocked reads the letters that came since the last call, and forgets letters that were deleted.
func (t *Tally) catchUpLocked(ctx context.Context, b *deadletter.Browser) error {
	s, err := b.Standing(ctx, false)
	if err != nil {
		return err
	}
	if s.Letters > mostTallied {
		return errTooMany
	}
	if !s.Created.Equal(t.created) || s.Last < t.last {
		t.forgetLocked()
		t.created = s.Created
	}
	t.restLocked()
	if s.Last > t.last && s.Letters > 0 {
		if err := b.After(ctx, t.last, s.Last, t.noteLocked); err != nil {
			return err
		}
	}
	t.last = s.Last
	first, _ := slices.BinarySearchFunc(t.letters, s.First, func(k tallied, seq uint64) int { return cmp.Compare(k.seq, seq) })
	t.letters = slices.Delete(t.letters, 0, first)
	if uint64(len(t.letters)) == s.Letters {
		return nil
	}
	if !s.Listable() {
		return errTooMany
	}
	if s, err = b.Standing(ctx, true); err != nil { // some letters between the first and the last were deleted
		return err
	}
	t.dropLocked(s)
	return nil
}

func (t *Tally) noteLocked(k deadletter.Kept) error {
	if len(t.letters) >= mostTallied {
		return errTooMany
	}
	of := Cause{k.API, k.Reason, k.Status, k.Billed}
	n, known := t.index[of]
	if !known {
		// After errTooMany the caller forgets everything, also the causes that no letter has any more.
		if len(t.causes) >= mostCauses {
			return errTooMany
		}
		if t.index == nil {
			t.index = map[Cause]uint32{}
		}
		n = uint32(len(t.causes))
		t.index[of], t.causes = n, append(t.causes, of)
	}
	t.letters = append(t.letters, tallied{k.Seq, k.Stored.UnixNano(), n})
	t.last = k.Seq // if the reading breaks off, the next call continues here
	return nil
}

// dropLocked forgets the letters that were deleted from the stream.
func (t *Tally) dropLocked(s deadletter.Standing) {
	gone := s.Deleted
	t.letters = slices.DeleteFunc(t.letters, func(k tallied) bool {
		for len(gone) > 0 && gone[0] < k.seq {
			gone = gone[1:]
		}
		return k.seq < s.First || len(gone) > 0 && gone[0] == k.seq
	})
}

func (t *Tally) countLocked(f *deadletter.Filter) []*Count {
	counts := map[uint32]*Count{}
	wanted := make([]bool, len(t.causes))
	for i, c := range t.causes {
		wanted[i] = f.ChoosesCause(c.API, c.Reason, c.Status)
	}
	since, until := int64(0), int64(1<<63-1)
	if !f.Since.IsZero() {
		since = f.Since.UnixNano()
	}
	if !f.Until.IsZero() {
		until = f.Until.UnixNano()
	}
	for _, k := range t.letters {
		if !wanted[k.cause] || k.stored < since || k.stored >= until {
			continue
		}
		n := counts[k.cause]
		if n == nil {
			n = &Count{Cause: t.causes[k.cause], Oldest: time.Unix(0, k.stored).UTC()}
			counts[k.cause] = n
		}
		n.Letters++
		n.Newest = time.Unix(0, k.stored).UTC()
	}
	return byFrequency(maps.Values(counts))
}

// restLocked restarts the timer after which the tally forgets everything.
func (t *Tally) restLocked() {
	if t.rest != nil {
		t.rest.Reset(tallyRests)
		return
	}
	t.rest = time.AfterFunc(tallyRests, func() {
		select {
		case t.turn <- struct{}{}:
			t.forgetLocked()
			<-t.turn
		default: // a call is using the tally
		}
	})
}

func (t *Tally) forgetLocked() {
	t.created, t.last, t.letters, t.causes, t.index = time.Time{}, 0, nil, nil, nil
}

// Close waits for calls that are reading, and then forgets everything.
func (t *Tally) Close() {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	if t.rest != nil {
		t.rest.Stop()
	}
	t.forgetLocked()
}
