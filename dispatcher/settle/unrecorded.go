package settle

import (
	"sync"

	"weir/dispatcher/lane"
)

// After a process has died, the ledger is complete only when the process's partitions have been read, and every call
// that was found without a record has got one. Limits that are counted in the process depend on this: until then, they
// have only an upper bound of what former processes used.

// unrecordedCalls tracks the calls of former processes that are not in the ledger yet. It is safe for concurrent use,
// and may be used under the lane's lock.
type unrecordedCalls struct {
	mu   sync.Mutex             // guards what follows
	jobs map[*lane.Job]struct{} // jobs whose last call is unrecorded: at most the calls under way at a death
	// unlogged counts calls that may have been made and will never have a record.
	unlogged int
}

// Await notes a job whose last call has no record yet.
func (u *unrecordedCalls) Await(j *lane.Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.jobs == nil {
		u.jobs = map[*lane.Job]struct{}{}
	}
	u.jobs[j] = struct{}{}
}

// AccountedFor notes that the record of a job's former call is stored, or that another owner must store it.
func (u *unrecordedCalls) AccountedFor(j *lane.Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.jobs, j)
}

// Never notes that a job's former call may have been made and will never have a record, because the data for one is
// gone. The call then counts as unlogged.
func (u *unrecordedCalls) Never(j *lane.Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, awaited := u.jobs[j]; awaited {
		delete(u.jobs, j)
		u.unlogged++
	}
}

// Left returns how many calls are unlogged, and whether every other call has its record.
func (u *unrecordedCalls) Left() (unlogged int, all bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unlogged, len(u.jobs) == 0
}

// settlingLocked reports whether a call is about to get its record. It ignores resting jobs: they wait for their
// limits, to be called again. The caller must hold the lane's lock.
func (u *unrecordedCalls) settlingLocked() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for j := range u.jobs {
		if !j.Rests() {
			return true
		}
	}
	return false
}

// FindingLocked reports whether calls of former processes may still be found, or found ones still lack their records.
func (w *Settler) FindingLocked() bool {
	for _, p := range w.Partitions {
		if p == nil && !w.Env.Shared || p != nil && p.Reading {
			return true
		}
	}
	return w.Unrecorded.settlingLocked()
}
