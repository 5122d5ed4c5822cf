package dispatcher

import "sync"

// What a death leaves of calls is in the ledger once its partitions have been read and every call that was found without
// a record has got one. Limits that are counted in the process go by that: until then what former processes used is known
// only as a bound.

// unrecordedCalls are those calls of former processes of which nothing is in the ledger yet. It is safe for concurrent use, also under the
// worker's lock.
type unrecordedCalls struct {
	mu   sync.Mutex        // guards what follows
	jobs map[*job]struct{} // whose last call they are: as many as were under way at a death, of which a worker has a bounded number
	// unlogged is how many calls may have been made of which nothing ever will be there.
	unlogged int
}

// await notes a job of whose last call nothing is recorded yet.
func (u *unrecordedCalls) await(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.jobs == nil {
		u.jobs = map[*job]struct{}{}
	}
	u.jobs[j] = struct{}{}
}

// accountedFor notes that what there is to be recorded of a job's former call is stored, or is another owner's to store.
func (u *unrecordedCalls) accountedFor(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.jobs, j)
}

// never notes that a job's former call may have been made, and that no record of it will be there: what it would tell of is
// gone. It counts as one that nobody wrote down.
func (u *unrecordedCalls) never(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, awaited := u.jobs[j]; awaited {
		delete(u.jobs, j)
		u.unlogged++
	}
}

// left is how many calls nobody wrote down, and whether every other one has its record.
func (u *unrecordedCalls) left() (unlogged int, all bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unlogged, len(u.jobs) == 0
}

// settlingLocked reports whether a call is about to get its record. What rests is called again, and waits for its limits. The worker's lock
// is held.
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

// Recovered reports whether all that was called before this process took an api's partitions is in the ledger, but for at
// most unlogged calls that nobody wrote down. It is false while a partition of the api is not owned here.
func (d *Dispatcher) Recovered(api string) (unlogged int, ok bool) {
	w := d.worker(api)
	if w == nil {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.partitions {
		if p == nil || p.replay != nil {
			return 0, false
		}
	}
	return w.unrecorded.left()
}

// findingLocked reports whether calls of former processes may be found yet, or be without the record that they get when they
// are judged.
func (w *apiWorker) findingLocked() bool {
	for _, p := range w.partitions {
		if p == nil && w.d.owner == nil || p != nil && p.replay != nil {
			return true
		}
	}
	return w.unrecorded.settlingLocked()
}
