package queue

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestSetBackStreamIsNotReadOn checks a server that comes back without its last writes and gives their sequences to new
// jobs. A reader that has read the lost jobs must notice, whether few or many new jobs have come.
func TestSetBackStreamIsNotReadOn(t *testing.T) {
	for what, more := range map[string]int{"nothing new": 0, "less than was lost": 10, "more than was lost": 80} {
		t.Run(what, func(t *testing.T) {
			p, restart := setBackRig(t)
			if _, err := p.Own(t.Context(), "test"); err != nil {
				t.Fatal(err)
			}
			p.publishJobs(t, 0, 10)
			restart(keepCopy)
			var seen atomic.Int64
			ended := make(chan error, 1)
			go func() {
				ended <- p.Read(t.Context(), ReadOptions{
					Mark: func(Entry) {}, MarkersLoaded: func() {}, Take: func(Entry) { seen.Add(1) }, Bodies: func() bool { return true },
					CaughtUp: func() {}, Stalled: func(error) {},
				})
			}()
			p.publishJobs(t, 10, 50)
			awaitCount(t, &seen, 50)
			restart(keepStore)
			p.publishJobs(t, 50, 60)
			awaitCount(t, &seen, 60)
			restart(backToCopy)
			p.publishJobs(t, 60, 60+more)
			select {
			case err := <-ended:
				if !errors.Is(err, errStreamReset) {
					t.Errorf("its reading ended with: %v", err)
				}
			case <-time.After(90 * time.Second):
				t.Error("nobody noticed")
			}
		})
	}
}

// TestNothingIsDeletedOfAnotherJob checks that finished jobs are deleted only when it is certain that the stream still
// has the same jobs at their sequences.
func TestNothingIsDeletedOfAnotherJob(t *testing.T) {
	for _, fate := range []storeFate{keepStore, backToCopy} {
		p, restart := setBackRig(t)
		p.publishJobs(t, 0, 10)
		restart(keepCopy)
		p.publishJobs(t, 10, 11)
		p.contents.begin()
		p.contents.mu.Lock()
		for seq := range uint64(11) {
			p.contents.position.pass(Entry{Seq: seq + 1, Time: time.Now()})
		}
		p.contents.mu.Unlock()
		restart(fate)
		if fate == backToCopy {
			p.publishJobs(t, 11, 12) // gets the sequence of the job before
		}
		if p.sweeper.mayDelete() {
			t.Error("a job would be deleted of which nobody knows whether it is still the same")
		}
		r := &reading{p: p}
		back, err := r.streamReset(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if set := fate == backToCopy; back != set || p.sweeper.mayDelete() == set {
			t.Errorf("set back: %t, taken for it: %t, deletes: %t", set, back, p.sweeper.mayDelete())
		}
	}
}

// TestFinishedIsDeletedAfterReconnect checks that jobs that were finished while the connection was lost are deleted as
// soon as it is back, long before the watchdog's next look.
func TestFinishedIsDeletedAfterReconnect(t *testing.T) {
	p, restart := setBackRig(t)
	p.watch = time.Hour
	var seen atomic.Int64
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() { await.Return(t, "the end of reader and sweeper", work.Wait) }()
	defer stop()
	work.Go(func() { _ = p.sweeper.run(ctx) })
	if _, err := p.Own(ctx, "test"); err != nil {
		t.Fatal(err)
	}
	work.Go(func() {
		_ = p.Read(ctx, ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Bodies: func() bool { return true },
			Take: func(Entry) { seen.Add(1) }, CaughtUp: func() {}, Stalled: func(error) {},
		})
	})
	p.publishJobs(t, 0, 10)
	awaitCount(t, &seen, 10)
	restart(keepStore)
	p.Finish("k0", 2)
	await.Until(t, "what was finished to be deleted", func() bool { return p.Unswept() == 0 })
}

// storeFate says what happens to the store while the server is down.
type storeFate int

const (
	keepStore storeFate = iota
	keepCopy
	backToCopy
)

// setBackRig returns a partition whose server can be restarted, with its store or with an earlier copy of the store.
func setBackRig(t *testing.T) (p *Partition, restart func(storeFate)) {
	dir, kept := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "kept")
	ns := natstest.Start(t, dir, 0)
	port := ns.Addr().(*net.TCPAddr).Port
	p = openTestPartition(t, ns)
	p.watch = 50 * time.Millisecond
	return p, func(fate storeFate) {
		t.Helper()
		ns.Shutdown()
		ns.WaitForShutdown()
		var err error
		switch fate {
		case keepCopy:
			err = os.CopyFS(kept, os.DirFS(dir))
		case backToCopy:
			if err = os.RemoveAll(dir); err == nil {
				err = os.CopyFS(dir, os.DirFS(kept))
			}
		case keepStore:
		}
		if err != nil {
			t.Fatal(err)
		}
		ns = natstest.Start(t, dir, port)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		for p.source.nc.FlushWithContext(ctx) != nil {
			if ctx.Err() != nil {
				t.Fatal("the connection did not come back")
			}
		}
	}
}

func awaitCount(t *testing.T, seen *atomic.Int64, want int64) {
	t.Helper()
	limit, tick := time.After(90*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for seen.Load() < want {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("read %d of %d", seen.Load(), want)
		}
	}
}
