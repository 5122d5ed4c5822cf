package takeover

import (
	"context"
	"fmt"

	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/settle"
)

// Takeover is one tenure of a partition: it reads the partition's stream, resumes the jobs that it finds there, and
// reports what is missing from the stream.
type Takeover struct {
	*lane.Owned
	reader   *reader
	losses   losses
	removals *removals
	stock    *stocktaking
}

// Options are the settings of a Takeover. All are required.
type Options struct {
	Settler *settle.Settler
	Notes   *settle.HoldNotes
	Pace    *Pace
	Dropped func(err error) // drops the partition, because another owner has taken it
}

// New returns a takeover that has read nothing.
func New(p *lane.Owned, o Options) *Takeover {
	stock := &stocktaking{Owned: p}
	t := &Takeover{
		Owned: p, stock: stock, losses: losses{p},
		reader:   &reader{Owned: p, settler: o.Settler, notes: o.Notes, pace: o.Pace, stock: stock, replay: newReplay()},
		removals: &removals{Owned: p, settler: o.Settler, notes: o.Notes, dropped: o.Dropped},
	}
	p.Intents.Refused = t.removals.examineFence
	return t
}

// Begin fences the partition's earlier owner, so that the stream refuses that owner's intents, and reads what it noted.
func (t *Takeover) Begin(ctx context.Context) (err error) {
	if t.Markers, err = t.Bucket.Own(ctx, t.W.Env.Instance); err != nil {
		return err
	}
	if err = t.stock.beginStocktaking(ctx); err != nil {
		return err
	}
	if t.Markers.Unreadable() {
		t.TellChange("the note of the partition's owner cannot be read, the store is damaged: that owner counts as one that died, and every key that has jobs here " +
			"waits as if its burst were used; look at the disk")
	}
	return nil
}

// Read reads the partition's stream and follows it until reading ends. It calls caughtUp when everything has been read
// that was in the stream at the takeover. It calls stalled when the reader was started again. Writes about jobs go on
// until hard ends.
func (t *Takeover) Read(reading, hard context.Context, caughtUp func(), stalled func(err error)) error {
	return t.Bucket.Read(reading, queue.ReadOptions{
		Mark: func(e queue.Entry) { t.reader.takeMarker(e) }, MarkersLoaded: func() { t.reader.markersLoaded() }, Take: func(e queue.Entry) { t.reader.add(hard, e) },
		Bodies: func() bool { return t.reader.replay == nil || !t.Cache.Full }, CaughtUp: func() { t.reader.open(reading); caughtUp() },
		Stalled: stalled, Damaged: func() { t.losses.damaged(reading, t.reader.begun(), t.reader.keepUnread()) },
		Removed: func(r queue.Removal) { t.removals.removed(hard, r) },
	})
}

// IsRead reports whether everything that was in the stream at the takeover has been read.
func (t *Takeover) IsRead() bool {
	t.W.Mu.Lock()
	defer t.W.Mu.Unlock()
	return !t.Reading
}

// AwaitRemovals blocks until the letters of deleted jobs are stored, or ctx ends. It must be called after Read has
// returned. The next owner does not know of jobs that were deleted before this owner had read them.
func (t *Takeover) AwaitRemovals(ctx context.Context) error {
	reported := make(chan struct{})
	go func() { // ends with the removals: they end when the tenure is lost, too
		t.removals.underWay.Wait()
		close(reported)
	}()
	select {
	case <-reported:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("letters of deleted jobs are not stored: %w", context.Cause(ctx))
	}
}

// CloseInventory notes which jobs wait, for the next owner. It must be called after Read has returned.
func (t *Takeover) CloseInventory(ctx context.Context) { t.stock.closeInventory(ctx) }

// ForgetLocked drops what the takeover has read, because the tenure ends.
func (t *Takeover) ForgetLocked() { t.reader.replay = nil }
