package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Holdings bound the memory that one process uses for the jobs of all apis and partitions. They count the bytes that
// the process really holds. Each stage on the way of a job has a room of its own, so that no stage can starve another:
//
//	intake  jobs on their way into their streams; without room, a job is refused with 503
//	kept    messages read ahead of their calls; without room, a message stays in its stream until it is needed
//	near    jobs near their call, with their answers; without room, a job waits
//
// Two more rooms bound the large messages on their way from servers to this process: one for messages read ahead, one
// for messages that are loaded.
//
// Every waiting key takes memory too, so Holdings also count keys. When no more keys fit, a job of a new key is refused
// with 503. Holdings are safe for concurrent use.
type Holdings struct {
	memory             int64
	intake, kept, near room
	ahead, loading     room
	keys               atomic.Int64
	mostKeys           int64
	tight              atomic.Bool
}

// Shares of the memory that the holdings are made for. The rest is for the garbage collector, the server and the
// connections.
const (
	intakeShare = 8  // an eighth
	keptShare   = 16 // a sixteenth
	nearShare   = 8
	keysShare   = 4 // three of four parts

	// A kept message saves its job a round trip to the stream. Messages for a thousand keys are plenty.
	mostKept = 32 << 20

	// keyBytes is what a waiting key costs with its first job: its line, its count, its place in the server's index of
	// subjects, and its id among those that the server knows. It was measured with 200,000 keys and the embedded
	// server. jobBytes is what each job costs until it ends, 4 bytes for a hash of its id included.
	keyBytes = 1100
	jobBytes = 36
)

// mostArriving bounds the bytes of large messages on their way, once for messages read ahead and once for messages
// loaded. A single message may be larger. A server disconnects a client that is behind by 64 MiB, unless it is
// configured otherwise.
const mostArriving = 16 << 20

// defaultMemory is the memory in bytes that a queue's holdings are made for if its options have none.
const defaultMemory = 1 << 30

// NewHoldings returns holdings for a process whose heap may have so many bytes.
func NewHoldings(memory int64) *Holdings {
	h := &Holdings{memory: memory, mostKeys: max(1, memory/keysShare*3/keyBytes)}
	h.intake.most = memory / intakeShare
	h.kept.most = min(memory/keptShare, mostKept)
	h.near.most = memory / nearShare
	h.ahead.most, h.loading.most = mostArriving, mostArriving
	return h
}

// Opens returns an error if queues with that many keys and jobs need more than the memory. It allows more than the
// intake does, so that a queue that was filled under a memory limit also opens under that limit.
func (h *Holdings) Opens(keys, jobs int64) error {
	if need := keys*keyBytes + jobs*jobBytes; need > h.memory {
		return fmt.Errorf("%d keys wait with %d jobs, which takes about %d MiB; there are %d MiB for it", keys, jobs, need>>20, h.memory>>20)
	}
	return nil
}

// IntakeBytes returns how many bytes may wait to be stored.
func (h *Holdings) IntakeBytes() int64 { return h.intake.most }

// SetTight says whether the heap is near its limit, whatever fills it. While it is, the intake refuses new jobs.
func (h *Holdings) SetTight(tight bool) { h.tight.Store(tight) }

// Tight reports whether the intake must refuse new jobs.
func (h *Holdings) Tight() bool { return h.tight.Load() }

// Held returns how many bytes each room holds, and how many keys wait.
func (h *Holdings) Held() (intake, kept, near, keys int64) {
	return h.intake.held(), h.kept.held(), h.near.held(), h.keys.Load()
}

// enter takes room for a job on its way into its stream. It returns an error if there is no room.
func (h *Holdings) enter(size int64, newKey bool) error {
	switch {
	case h.tight.Load():
		return errors.New("its heap is as large as it may be")
	case newKey && h.keys.Load() >= h.mostKeys:
		return fmt.Errorf("%d keys wait already, and no more fit into its memory", h.keys.Load())
	case !h.intake.take(size):
		return fmt.Errorf("%d bytes wait to be stored already", h.intake.held())
	}
	return nil
}

// Keep takes room for a message that is read ahead, and reports whether there was room. holds is how many bytes the
// calling partition has already. Keep leaves that much free for other callers, so that the queue of one api cannot take
// the whole room. Drop gives the room back.
func (h *Holdings) Keep(size, holds int64) bool { return h.kept.takeFairly(size, holds) }

// Drop gives back what Keep took.
func (h *Holdings) Drop(size int64) { h.kept.give(size) }

// Near waits for room for a job near its call until ctx ends. Callers are served in the order in which they came. A job
// that is larger than the whole room gets room when no other job holds any, so one job can always be called.
//
// Near waits for other jobs to end, so a job that holds a Space must not ask for another.
func (h *Holdings) Near(ctx context.Context, size int64) (*Space, error) {
	return h.near.await(ctx, size)
}

// TryNear is Near without the wait: it returns nil if there is no room now.
func (h *Holdings) TryNear(size int64) *Space { return h.near.try(size) }

// Space is room that a job has taken. A nil Space holds nothing.
type Space struct {
	of   *room
	size int64 // guarded by the room's lock
}

// Resize sets a space to the size that its job turned out to need. Growing does not wait, because the message is in
// memory already.
func (s *Space) Resize(size int64) {
	if s == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.used += size - s.size
	s.size = size
	s.of.admitLocked()
}

// Release gives a space up. It may be called more than once.
func (s *Space) Release() { s.Resize(0) }

// room is a number of bytes, some of them used, and the waiters for more.
type room struct {
	most int64 // constant

	mu      sync.Mutex // guards what follows, and the spaces taken from it
	used    int64
	waiting []*waiter // in the order they came; at most the jobs that are prepared or ended at the same time
}

type waiter struct {
	space   *Space
	size    int64
	granted chan struct{} // closed when the space has its size
}

// fitsLocked reports whether there is room.
func (r *room) fitsLocked(size int64) bool { return r.used == 0 || r.used+size <= r.most }

func (r *room) held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

func (r *room) take(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fitsLocked(size) {
		return false
	}
	r.used += size
	return true
}

// try takes space at once, unless another job waits for space.
func (r *room) try(size int64) *Space {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 || !r.fitsLocked(size) {
		return nil
	}
	r.used += size
	return &Space{of: r, size: size}
}

func (r *room) takeFairly(size, holds int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holds+size > r.most-r.used {
		return false
	}
	r.used += size
	return true
}

func (r *room) give(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used -= size; r.used < 0 {
		panic("bucket: more room was given back than was taken")
	}
	r.admitLocked()
}

func (r *room) await(ctx context.Context, size int64) (*Space, error) {
	w := &waiter{space: &Space{of: r}, size: size, granted: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, w)
	r.admitLocked()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return w.space, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	w.size = 0 // it takes nothing when its turn comes
	r.admitLocked()
	r.mu.Unlock()
	w.space.Release()
	return nil, fmt.Errorf("room in memory: %w", context.Cause(ctx))
}

// admitLocked gives room to the waiters that fit, in their order.
func (r *room) admitLocked() {
	for len(r.waiting) > 0 {
		w := r.waiting[0]
		if w.size > 0 && !r.fitsLocked(w.size) {
			return
		}
		r.waiting[0] = nil
		if r.waiting = r.waiting[1:]; len(r.waiting) == 0 {
			r.waiting = nil
		}
		r.used += w.size
		w.space.size = w.size
		close(w.granted)
	}
}
