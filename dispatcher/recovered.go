package dispatcher

import "weir/dispatcher/schedule"

// What a death leaves of calls is in the ledger once its partitions have been read and every call that was found without
// a record has got one. Limits that are counted in the process go by that: until then what former processes used is known
// only as a bound.

// awaitRecordLocked notes a job of whose last call nothing is recorded yet.
func (l *lane) awaitRecordLocked(j *job) {
	if l.unrecorded == nil {
		l.unrecorded = map[*job]struct{}{}
	}
	l.unrecorded[j] = struct{}{} // of calls that were under way at a death: a lane has a bounded number of those
}

// accountedFor notes that what there is to be recorded of a job's former call is stored, or will never be.
func (l *lane) accountedFor(j *job) {
	l.mu.Lock()
	delete(l.unrecorded, j)
	l.mu.Unlock()
}

// neverRecorded notes that a job's former call may have been made, and that no record of it will be there: what it would tell of is
// gone. It counts as one that nobody wrote down.
func (l *lane) neverRecorded(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, awaited := l.unrecorded[j]; awaited {
		delete(l.unrecorded, j)
		l.unlogged++
	}
}

// suspectUnloggedLocked counts a job that may have been called without an intent before its owner, of an earlier version,
// died: no record of that call will ever be there.
func (l *lane) suspectUnloggedLocked(q *schedule.KeyQueue, h history) {
	if l.untoldLocked(q) && h.intent == nil && h.result == nil && (h.last == nil || !h.last.Final) {
		l.unlogged++
	}
}

// Recovered reports whether all that was called before this process took an api's partitions is in the ledger, but for at
// most unlogged calls that nobody wrote down. It is false while a partition of the api is not owned here.
func (d *Dispatcher) Recovered(api string) (unlogged int, ok bool) {
	l := d.lane(api)
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.parts {
		if p == nil || p.replay != nil {
			return 0, false
		}
	}
	return l.unlogged, len(l.unrecorded) == 0
}

// findingLocked reports whether calls of former processes may be found yet, or be without the record that they get when they
// are judged.
func (l *lane) findingLocked() bool {
	for _, p := range l.parts {
		if p == nil && l.d.owner == nil || p != nil && p.replay != nil {
			return true
		}
	}
	for j := range l.unrecorded {
		if !j.Rests() { // what rests is called again, and waits for its limits
			return true
		}
	}
	return false
}
