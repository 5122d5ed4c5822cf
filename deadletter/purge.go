package deadletter

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"weir/bucket"
)

// Contents says how many letters a scope has, and sums them up.
type Contents struct {
	Letters int
	Bytes   int64 // of the bodies
	Oldest  time.Time
	Newest  time.Time
	Billed  int // letters with a call that was charged
	Maybe   int // letters with a call that may have been charged
}

// Contents counts the letters of a scope. It reads no bodies.
func (s *Scope) Contents(ctx context.Context) (*Contents, error) {
	c, walk := &Contents{}, s.Walk(HeadersOnly)
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil || len(chunk) == 0 {
			return c, err
		}
		for i := range chunk {
			k := &chunk[i]
			c.Letters++
			c.Bytes += int64(k.Size)
			if c.Oldest.IsZero() {
				c.Oldest = k.Stored
			}
			c.Newest = k.Stored
			switch k.Billed {
			case BilledYes:
				c.Billed++
			case BilledUnknown:
				c.Maybe++
			}
		}
	}
}

// deletesAtOnce is the maximum number of concurrent deletions.
const deletesAtOnce = 64

// PurgeOptions configure a purge. All fields are required except Rate.
type PurgeOptions struct {
	Rate     *bucket.Rate // nil: as fast as the server deletes
	Valid    func() bool  // whether this process still is the only one that may purge
	Progress func(deleted int)
}

// Purge deletes the letters of a scope permanently. It returns how many it has deleted, even if it fails. If the server
// itself can select the letters, one request deletes all. Otherwise Purge deletes them one by one, oldest first.
func (s *Scope) Purge(ctx context.Context, o PurgeOptions) (int, error) {
	f := &s.filter
	if s.seqs == nil && o.Rate == nil && f.Job == "" && f.Status == (StatusRange{}) && f.Since.IsZero() {
		return s.purgeAtOnce(ctx, o)
	}
	turn := pace{}
	if o.Rate != nil {
		turn.every = o.Rate.Per / time.Duration(max(1, o.Rate.Count))
	}
	var deleted atomic.Int64
	walk := s.Walk(HeadersOnly)
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil || len(chunk) == 0 {
			return int(deleted.Load()), err
		}
		group, each := errgroup.WithContext(ctx)
		group.SetLimit(deletesAtOnce)
		for i := range chunk {
			if err := turn.wait(each); err != nil {
				break // a deletion failed, or ctx ended: see below
			}
			group.Go(func() error {
				if !o.Valid() {
					return ErrRightLost
				}
				if err := s.browser.Delete(each, chunk[i].Seq); err != nil {
					return err
				}
				deleted.Add(1)
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return int(deleted.Load()), err
		}
		o.Progress(int(deleted.Load()))
		if ctx.Err() != nil {
			return int(deleted.Load()), fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}
}

// purgeAtOnce makes the server delete all letters that match the filter's subject, up to the scope's last.
func (s *Scope) purgeAtOnce(ctx context.Context, o PurgeOptions) (int, error) {
	c, err := s.Contents(ctx)
	if err != nil || c.Letters == 0 {
		return 0, err
	}
	if !o.Valid() {
		return 0, ErrRightLost
	}
	err = s.browser.stream.Purge(ctx, jetstream.WithPurgeSubject(s.filter.subject()), jetstream.WithPurgeSequence(s.walk.last+1))
	if err != nil {
		return 0, fmt.Errorf("purge the dead letters: %w", err)
	}
	o.Progress(c.Letters)
	return c.Letters, nil
}
