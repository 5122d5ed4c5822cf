package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest/await"
)

// ownedPartition returns a partition with so many jobs, which is owned and read, and what its reader reads and misses.
// The reader looks for deleted messages every removalWatch.
func ownedPartition(
	t *testing.T, jobs int, removalWatch time.Duration,
) (p *Partition, m *Markers, read chan Entry, removed chan Removal) {
	t.Helper()
	p = openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	p.removalWatch = removalWatch
	m, err := p.Own(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	p.publishJobs(t, 0, jobs)
	read, removed = make(chan Entry, 1000), make(chan Removal, 100)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	caughtUp, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- p.Read(ctx, ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Bodies: func() bool { return true }, Take: func(e Entry) { read <- e },
			CaughtUp: func() { close(caughtUp) }, Stalled: func(err error) { t.Log("set up anew:", err) }, Damaged: func() {},
			Removed: func(r Removal) { removed <- r },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := await.Receive(t, "the end of the reader", ended); err != nil {
			t.Error(err)
		}
	})
	await.Receive(t, "the reader to catch up", caughtUp)
	for range jobs {
		await.Receive(t, "a job", read)
	}
	return p, m, read, removed
}

// TestPurgeIsNoticed checks that unfinished messages that a purge deletes are reported once, with the epoch. The
// owner's epoch can be stored again. The stream then accepts intents with the new epoch and refuses those with the
// former.
func TestPurgeIsNoticed(t *testing.T) {
	p, m, read, removed := ownedPartition(t, 20, 20*time.Millisecond)
	intend := runMarkers(t, m)
	if err := intend(); err != nil {
		t.Fatal(err)
	}
	p.Finish("k0", 2) // the epoch is 1
	if err := p.source.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := await.Receive(t, "the word of it", removed)
	if r.Remade || !r.Epoch || slices.Contains(r.Seqs, 2) || !slices.Contains(r.Seqs, 3) || !slices.Contains(r.Seqs, 21) {
		t.Errorf("told: %+v", r)
	}
	if err := intend(); !errors.Is(err, ErrFenced) {
		t.Errorf("without its epoch an intent: %v", err)
	}
	p.LookForRemovals()
	<-time.After(5 * p.removalWatch)
	select {
	case again := <-removed:
		t.Errorf("told again before it was mended: %+v", again)
	default:
	}
	if f, err := m.Fence(t.Context()); err != nil || f != FenceGone {
		t.Errorf("the fence is %v: %v", f, err)
	}
	if err := m.Renew(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if err := intend(); err != nil {
		t.Errorf("by the new epoch: %v", err)
	}
	p.publishJobs(t, 20, 25)
	for range 5 {
		await.Receive(t, "a job after the purge", read)
	}
	select {
	case again := <-removed:
		t.Errorf("told again: %+v", again)
	case <-time.After(5 * p.removalWatch):
	}
	if _, err := p.Own(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	if f, err := m.Fence(t.Context()); err != nil || f != FenceOther {
		t.Errorf("beside another owner the fence is %v: %v", f, err)
	}
	if err := m.Renew(t.Context(), "test"); !errors.Is(err, ErrFenced) {
		t.Errorf("beside another owner the epoch is stored: %v", err)
	}
}

// TestSingleDeletesAreNoticed checks the same as TestPurgeIsNoticed for single deleted messages between others that
// stay.
func TestSingleDeletesAreNoticed(t *testing.T) {
	p, _, _, removed := ownedPartition(t, 20, 20*time.Millisecond)
	for _, seq := range []uint64{5, 9} {
		if err := p.source.stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []uint64
	for len(seqs) < 2 {
		r := await.Receive(t, "the word of it", removed)
		if r.Epoch || r.Remade {
			t.Errorf("told: %+v", r)
		}
		seqs = append(seqs, r.Seqs...)
	}
	if !slices.Equal(seqs, []uint64{5, 9}) {
		t.Errorf("told: %v", seqs)
	}
}

// TestDeletedStreamIsMadeAgain checks that a stream that is gone is made again with later sequences, that its jobs are
// reported, and that new jobs are read.
func TestDeletedStreamIsMadeAgain(t *testing.T) {
	p, m, read, removed := ownedPartition(t, 20, 20*time.Millisecond)
	if err := p.queue.js.DeleteStream(t.Context(), p.source.name); err != nil {
		t.Fatal(err)
	}
	r := await.Receive(t, "the word of it", removed)
	if !r.Remade || !r.Epoch || len(r.Seqs) != 20 {
		t.Errorf("told: %+v", r)
	}
	if err := m.Renew(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	intend := runMarkers(t, m)
	if err := intend(); err != nil {
		t.Fatal(err)
	}
	p.publishJobs(t, 20, 23)
	for range 3 {
		if e := await.Receive(t, "a job after it", read); e.Seq <= 21 {
			t.Errorf("a job has the number %d, which another had", e.Seq)
		}
	}
	info, err := p.source.stream.Info(t.Context())
	if err != nil || info.Config.MaxMsgsPerSubject != 1000 || !info.Config.DiscardNewPerSubject {
		t.Errorf("it was made as %+v: %v", info, err)
	}
}

// TestUnreadJobIsNoticed checks that a job that was deleted by hand before it was read is reported with its key, and
// that its bucket has room for another job again.
func TestUnreadJobIsNoticed(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 3)
	p.contents.mu.Lock()
	p.contents.reading, p.contents.caughtUp = true, true
	p.contents.book.enter("a")
	p.contents.book.own[2] = "a"
	p.contents.mu.Unlock()
	if err := p.source.stream.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if r := p.contents.takenOut(func(seq uint64) bool { return seq == 2 }); r.Unread[2] != "a" || len(r.Seqs) != 0 {
		t.Errorf("told: %+v", r)
	}
	if n := p.contents.depth("a"); n != 0 {
		t.Errorf("its bucket holds %d", n)
	}
}

// TestOwnersDeletesAreNoRemovals checks that messages that the owner deletes under load, by purges and single deletes,
// are never reported as deleted by hand.
func TestOwnersDeletesAreNoRemovals(t *testing.T) {
	p, _, read, removed := ownedPartition(t, 0, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan error, 1)
	go func() { swept <- p.sweeper.run(ctx) }()
	const jobs = 2000
	go func() {
		for i := range jobs {
			_, _ = p.queue.js.PublishAsync(queueSubject("pay", 0, kindJob, fmt.Sprintf("k%d", i%40)), nil)
		}
	}()
	var held []Entry
	for n := range jobs {
		e := await.Receive(t, "a job", read)
		if n%3 == 0 {
			p.Finish(e.Key, e.Seq)
		} else if held = append(held, e); len(held) > 50 {
			p.Finish(held[n%50].Key, held[n%50].Seq)
			held = slices.Delete(held, n%50, n%50+1)
		}
		if n%20 == 0 {
			p.LookForRemovals()
		}
	}
	for _, e := range held {
		p.Finish(e.Key, e.Seq)
	}
	await.Until(t, "all to be deleted", func() bool { return p.Unswept() == 0 })
	cancel()
	if err := await.Receive(t, "the end of the sweeper", swept); err != nil {
		t.Error(err)
	}
	select {
	case r := <-removed:
		t.Errorf("told: %+v", r)
	default:
	}
}

// TestSweepSparesWhatWaits checks that deleting finished jobs, by one purge or singly, spares the unfinished jobs after
// them and between them.
func TestSweepSparesWhatWaits(t *testing.T) {
	p, _, _, removed := ownedPartition(t, 8, 20*time.Millisecond) // 2 to 9: the epoch is 1
	for _, seq := range []uint64{2, 3, 4, 7} {
		p.Finish(fmt.Sprintf("k%d", seq-2), seq)
	}
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan error, 1)
	go func() { swept <- p.sweeper.run(ctx) }()
	await.Until(t, "the finished to be deleted", func() bool { return p.Unswept() == 0 })
	cancel()
	if err := await.Receive(t, "the end of the sweeper", swept); err != nil {
		t.Error(err)
	}
	for seq, waits := range map[uint64]bool{2: false, 3: false, 4: false, 5: true, 6: true, 7: false, 8: true, 9: true} {
		if _, err := p.source.stream.GetMsg(t.Context(), seq); (err == nil) != waits {
			t.Errorf("%d: waits %t, %v", seq, waits, err)
		}
	}
	select {
	case r := <-removed:
		t.Errorf("told: %+v", r)
	default:
	}
}

// TestPurgeDuringATakeover checks that a new owner does not wait for a stream that loses the owner's epoch while the
// owner reads it.
func TestPurgeDuringATakeover(t *testing.T) {
	p := newTestPartition(t)
	p.removalWatch = 20 * time.Millisecond
	p.publishJobs(t, 0, 10)
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if err := p.source.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := await.Result(t, "the end of the reader", func() error {
		return p.Read(t.Context(), ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Take: func(Entry) {}, Bodies: func() bool { return true }, Damaged: func() {},
			CaughtUp: func() { t.Error("it has caught up") }, Stalled: func(error) {}, Removed: func(Removal) {},
		})
	})
	if !errors.Is(err, errEpochTaken) {
		t.Errorf("it ended with %v", err)
	}
}
