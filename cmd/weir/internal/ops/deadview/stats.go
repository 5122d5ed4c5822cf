package deadview

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"weir/deadletter"
)

// Cause is the group in which a letter is counted.
type Cause struct {
	API    string            `json:"api"`
	Reason deadletter.Reason `json:"reason"`
	Status int               `json:"status"`
	Billed deadletter.Billed `json:"billed"`
}

// Count is the number of letters with a cause.
type Count struct {
	Cause

	Letters int       `json:"letters"`
	Oldest  time.Time `json:"oldest"`
	Newest  time.Time `json:"newest"`
}

// CountByCause counts the letters that a filter selects, by cause, the most frequent cause first. It reads the headers
// of all these letters. After each letter it calls progress, which may be nil.
func CountByCause(ctx context.Context, b *deadletter.Browser, f deadletter.Filter, progress func(read, of uint64)) ([]*Count, error) {
	causes := map[Cause]*Count{}
	err := b.Each(ctx, f, func(k deadletter.Kept, read, of uint64) error {
		cause := Cause{k.API, k.Reason, k.Status, k.Billed}
		n := causes[cause]
		if n == nil {
			n = &Count{Cause: cause, Oldest: k.Stored.UTC()}
			causes[cause] = n
		}
		n.Letters++
		n.Newest = k.Stored.UTC()
		if progress != nil {
			progress(read, of)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return byFrequency(maps.Values(causes)), nil
}

// byFrequency sorts the counts, the most frequent cause first.
func byFrequency(counts iter.Seq[*Count]) []*Count {
	return slices.SortedFunc(counts, func(a, b *Count) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.API, b.API), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Status, b.Status), cmp.Compare(a.Billed, b.Billed))
	})
}
