package jobindex

import (
	"hash/maphash"
	"slices"
	"time"

	"weir/dispatcher/ledger"
)

// Bounds of counting the calls that began while a job waited.
const (
	MostAhead  = 200                   // the most calls that are counted
	MostLooked = 2 * MostAhead         // the most records of calls of the key that are examined
	MostRead   = 5 * MostLooked        // the most records of the key that are read from the ledger
	mostBeside = 20                    // the most records after the call's own that are examined, for calls that began before it and ended later
	skew       = 50 * time.Millisecond // by how much the time of a record may be earlier than the acceptance of its job, because two clocks gave the times
	clocks     = 5 * time.Second       // by how much the clocks of stream leaders and of the calling replica may differ
)

// Wait is a job's wait for a call.
type Wait struct {
	API      string    `json:"api"`
	Key      string    `json:"key"`
	Job      string    `json:"job"`
	Seq      uint64    `json:"seq"` // of the record of the call in the ledger
	Accepted time.Time `json:"accepted"`
	Started  time.Time `json:"started"`
}

// Stored returns the time span in which the server stored the records of the calls of the key that began during the
// wait.
func (w *Wait) Stored() (from, to time.Time) { return w.Accepted.Add(-skew), w.Started.Add(clocks) }

// Began reports whether a call that started at this time began while the job waited.
func (w *Wait) Began(started time.Time) bool {
	return started.After(w.Accepted) && started.Before(w.Started)
}

// Ahead counts the calls of other jobs of a key that began while a job waited. N is their number.
type Ahead struct {
	N              int
	looked, beside int // records examined, and how many of them are the call's own record or come after it
}

// Add takes the records of the key's calls one by one, in the order in which they were stored. own says that the record
// is of the call that the job waited for. ahead says that the record is of another job's call that began during the
// wait. Add returns false when it needs no more records.
func (a *Ahead) Add(own, ahead bool) (more bool) {
	a.looked++
	if ahead {
		a.N++
	}
	if own || a.beside > 0 {
		a.beside++
	}
	return a.N < MostAhead && a.beside <= mostBeside && a.looked < MostLooked
}

// IsCall reports whether a record counts as a call of its own. The end of an operation, an inquiry and a reused answer
// are no calls. The call of a pack counts with the record of the job at place 0.
func IsCall(c *ledger.Record) bool {
	return !c.Polled && c.Inquiry == "" && c.Outcome != ledger.Reused && !c.Pack.Follows()
}

// NotKnown stands for a number that the index does not have.
const NotKnown = -1

// Ahead returns, for each wait, how many calls of other jobs of the same key began during that wait. It returns
// NotKnown if the index does not reach back to the wait, or does not yet have the call that ended the wait. It reads
// only memory.
func (x *Index) Ahead(waits []Wait) []int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]int, len(waits))
	for i := range waits {
		all[i], _ = x.aheadLocked(&waits[i])
	}
	return all
}

// aheadLocked counts the calls for one wait. It also returns how many entries it examined.
func (x *Index) aheadLocked(w *Wait) (n, looked int) {
	from, to := w.Stored()
	s := &x.calls
	if !s.begun || s.last < w.Seq || s.missing > 0 || !s.whole && (s.since == 0 || s.since >= from.UnixNano()) {
		return NotKnown, 0
	}
	of, hash := x.keyHash(w.API, w.Key), maphash.String(x.seed, w.Job)
	var found Ahead
	isKnown := true
	s.between(from.UnixNano(), to.UnixNano(), of, func(b *block, e *entry) bool {
		looked++
		own := e.seq == w.Seq
		if e.of != uint32(of) || e.listable && !b.isKey(e, w.Key) || e.uncalled && !own {
			return true
		}
		at, ok := e.started()
		isKnown = isKnown && ok
		ahead := e.hash != hash && at > w.Accepted.UnixMicro() && at < w.Started.UnixMicro()
		return found.Add(own, ahead) && isKnown
	})
	if !isKnown {
		return NotKnown, looked
	}
	return found.N, looked
}

// between calls take with the entries that were stored from from to to, oldest first, until take returns false. It
// skips blocks whose filter does not have hash.
func (s *shelf) between(from, to int64, hash uint64, take func(b *block, e *entry) bool) {
	pass := func(b *block, e *entry) bool { return e.stored < from || e.stored <= to && take(b, e) }
	for _, b := range slices.Backward(s.older) {
		if len(b.entries) == 0 || b.entries[0].stored < from || !b.filter.has(hash) {
			continue
		}
		for i := range slices.Backward(b.entries) {
			if !pass(b, &b.entries[i]) {
				return
			}
		}
	}
	for _, b := range s.newer {
		if n := len(b.entries); n == 0 || b.entries[n-1].stored < from || !b.filter.has(hash) {
			continue
		}
		for i := range b.entries {
			if !pass(b, &b.entries[i]) {
				return
			}
		}
	}
}
