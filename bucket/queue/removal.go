package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Only a partition's owner deletes messages of its stream. An unfinished message that is gone was deleted by hand:
// alone, by a purge, or with the stream itself.

// removalWatch is how often the owner looks for messages that were deleted by hand.
const removalWatch = 3 * time.Second

// remadeAhead is the distance between the last sequence that the owner knows and the first sequence of a stream that is
// made again. It is more than other intakes can have stored unnoticed, so no sequence is used twice. Otherwise a new
// job would get the records, results and letters of an earlier job, or a late delete would find it.
const remadeAhead = 1 << 20

// Removal describes messages that were deleted from a partition's stream although its owner had not finished them.
type Removal struct {
	// Remade says that the stream itself was gone. It was made again, empty.
	Remade bool
	// Behind says that another process made the stream again, and that the new stream reuses sequences that were read.
	// The owner must take the partition over again.
	Behind bool
	// Epoch says that this owner's epoch is gone: see Markers.Renew.
	Epoch bool
	// Seqs are the deleted messages that the reader had read, jobs and markers, in rising order.
	Seqs []uint64
	// Unread are the deleted jobs that this process had stored and its reader had not received, with their keys.
	Unread map[uint64]string
}

// None reports whether nothing was deleted by hand.
func (r *Removal) None() bool { return !r.Remade && !r.Epoch && len(r.Seqs) == 0 && len(r.Unread) == 0 }

// removal looks for messages that were deleted by hand since its last look. If the stream is gone, it makes the stream
// again first.
func (p *Partition) removal(ctx context.Context) (Removal, error) {
	before := p.contents.reckon()
	source, remade, err := p.lookAgain(ctx)
	if err != nil {
		return Removal{}, err
	}
	state := source.CachedInfo().State
	if p.contents.isAnother(source.CachedInfo().Created) || remade && state.FirstSeq > p.contents.readTo() {
		r := p.contents.takenOut(func(uint64) bool { return true })
		r.Remade, r.Epoch, r.Behind = true, before.fence > 0, state.FirstSeq <= p.contents.readTo()
		return r, nil
	}
	if !p.contents.reckon().misses(before, &state) {
		return Removal{}, nil
	}
	info, err := p.source.details(ctx) // before takenOut, which then finds the owner's own deletions marked as finished
	if err != nil {
		return Removal{}, err
	}
	deleted := make(map[uint64]struct{}, len(info.State.Deleted))
	for _, seq := range info.State.Deleted {
		deleted[seq] = struct{}{}
	}
	gone := func(seq uint64) bool {
		_, in := deleted[seq]
		return in || seq < info.State.FirstSeq
	}
	r := p.contents.takenOut(gone)
	r.Epoch = p.contents.loseEpoch(before.fence, gone)
	return r, nil
}

// BehindAll returns the first sequence of a stream that is made again, if last is the last known sequence.
func BehindAll(last uint64) uint64 { return last + remadeAhead }

// ReadFrom returns when the stream was created, and up to which sequence it was read.
func (p *Partition) ReadFrom() (born time.Time, seq uint64) {
	return p.contents.readFrom(p.source.stream.CachedInfo().Created)
}

// Waiting returns how many jobs of the partition are not finished, as far as this process knows.
func (p *Partition) Waiting() int { return int(p.contents.jobs.Load()) }

// Gone describes which messages are missing in a stream that was read to its end.
type Gone struct {
	Seqs    []uint64 // of the messages asked about, those that were deleted
	First   uint64   // the stream's first sequence
	Another bool     // the stream is not the one that was created at the given time
}

// Gone finds out which of the given messages were deleted. The reader has not received these messages. If the stream
// has too many deleted messages to list, Gone takes all of them for deleted. A message that the stream still counts was
// not deleted: Damage finds it. born is when the stream that held the messages was created.
func (p *Partition) Gone(ctx context.Context, seqs []uint64, born time.Time) (g Gone, err error) {
	info, err := p.source.details(ctx)
	if err != nil {
		return g, err
	}
	state := &info.State
	g.First, g.Another = state.FirstSeq, !info.Created.Equal(born)
	deleted := make(map[uint64]struct{}, len(state.Deleted))
	for _, seq := range state.Deleted {
		deleted[seq] = struct{}{}
	}
	for _, seq := range seqs {
		if _, in := deleted[seq]; in || seq < state.FirstSeq || state.NumDeleted > mostDeleted || g.Another && seq > state.LastSeq {
			g.Seqs = append(g.Seqs, seq)
		}
	}
	return g, nil
}

// lookAgain returns the stream, and makes it again if it is gone.
func (p *Partition) lookAgain(ctx context.Context) (source jetstream.Stream, remade bool, err error) {
	source, err = p.source.look(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := p.remake(ctx); err != nil {
			return nil, false, err
		}
		remade = true
		source, err = p.source.look(ctx)
	}
	return source, remade, err
}

// errEpochTaken says that a stream was purged or deleted while its new owner read it.
var errEpochTaken = errors.New("the owner's epoch was deleted by hand while weir read the stream; weir must take the partition over again")

// lookForRemovals passes messages that were deleted by hand to Removed. It returns an error if the reader must not
// continue as it is. If it cannot look at the stream, it returns nil: the next tick looks again.
func (r *reading) lookForRemovals(ctx context.Context) error {
	if !r.p.contents.isCaughtUp() {
		if r.lacksEpoch(ctx) {
			return errEpochTaken
		}
		return nil
	}
	removal, err := r.p.removal(ctx)
	if err != nil || removal.None() {
		return nil //nolint:nilerr // it is looked at again
	}
	r.Removed(removal)
	switch {
	case removal.Behind:
		return errStreamReset
	case removal.Remade:
		return errReadOtherwise
	}
	return nil
}

// lacksEpoch reports whether the stream begins after this owner's epoch, or is gone.
func (r *reading) lacksEpoch(ctx context.Context) bool {
	fence := r.p.contents.epoch()
	source, err := r.p.source.look(ctx)
	return errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && fence > 0 && fence < source.CachedInfo().State.FirstSeq
}

// remake makes the partition's stream again. The new stream begins after all known sequences of the stream that is
// gone.
func (p *Partition) remake(ctx context.Context) error {
	s := *p.queue.settings.Load()
	_, err := ensureQueueStream(ctx, p.source.js, s, partitionOf{
		number: p.source.number, of: len(p.queue.partitions), firstSeq: BehindAll(p.contents.lastKnown()),
	})
	if err != nil {
		return fmt.Errorf("make %s again: %w", p.source.name, err)
	}
	return nil
}

// Fence says whose epoch a partition's stream holds.
type Fence int

// The fences.
const (
	FenceOwn   Fence = iota // this owner's
	FenceGone               // none: it was deleted by hand
	FenceOther              // another owner's
)

// Fence asks the stream's leader whose epoch the stream holds.
func (m *Markers) Fence(ctx context.Context) (Fence, error) {
	m.mu.Lock() // not while Renew stores the epoch again
	defer m.mu.Unlock()
	of := &m.p.source
	last, err := stream.AskLeader(ctx, of.nc, of.name, fmt.Sprintf(`{"last_by_subj":%q}`, of.owner()))
	switch {
	case err != nil:
		return FenceOwn, fmt.Errorf("look for the owner of %s: %w", m.p.source.name, err)
	case last == nil:
		return FenceGone, nil
	case last.Seq != m.epoch:
		return FenceOther, nil
	}
	return FenceOwn, nil
}

// Renew stores this owner's epoch again after it was deleted by hand. The caller must have the right to the partition.
// If the stream holds another owner's epoch, Renew fails with ErrFenced.
func (m *Markers) Renew(ctx context.Context, instance string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq, err := m.p.source.storeEpoch(ctx, instance)
	if err != nil {
		return err
	}
	m.p.contents.own(seq)
	m.epoch = seq
	return nil
}

// LookForRemovals makes the owner's reader look for deleted messages now.
func (p *Partition) LookForRemovals() {
	select {
	case p.lookNow <- struct{}{}:
	default:
	}
}
