package dispatcher

import "weir/dispatcher/schedule"

// What a death leaves of calls is in the ledger once its partitions have been read and every call that was found without
// a record has got one. Limits that are counted in the process go by that: until then what former processes used is known
// only as a bound.

// awaitRecordLocked notes a job of whose last call nothing is recorded yet.
func (w *apiWorker) awaitRecordLocked(j *job) {
	if w.unrecorded == nil {
		w.unrecorded = map[*job]struct{}{}
	}
	w.unrecorded[j] = struct{}{} // of calls that were under way at a death: a worker has a bounded number of those
}

// accountedFor notes that what there is to be recorded of a job's former call is stored, or will never be.
func (w *apiWorker) accountedFor(j *job) {
	w.mu.Lock()
	delete(w.unrecorded, j)
	w.mu.Unlock()
}

// neverRecorded notes that a job's former call may have been made, and that no record of it will be there: what it would tell of is
// gone. It counts as one that nobody wrote down.
func (w *apiWorker) neverRecorded(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, awaited := w.unrecorded[j]; awaited {
		delete(w.unrecorded, j)
		w.unlogged++
	}
}

// suspectUnloggedLocked counts a job that may have been called without an intent before its owner, of an earlier version,
// died: no record of that call will ever be there.
func (w *apiWorker) suspectUnloggedLocked(q *schedule.KeyQueue, h jobHistory) {
	if w.untoldLocked(q) && h.intent == nil && h.result == nil && (h.last == nil || !h.last.Final) {
		w.unlogged++
	}
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
	return w.unlogged, len(w.unrecorded) == 0
}

// findingLocked reports whether calls of former processes may be found yet, or be without the record that they get when they
// are judged.
func (w *apiWorker) findingLocked() bool {
	for _, p := range w.partitions {
		if p == nil && w.d.owner == nil || p != nil && p.replay != nil {
			return true
		}
	}
	for j := range w.unrecorded {
		if !j.Rests() { // what rests is called again, and waits for its limits
			return true
		}
	}
	return false
}
