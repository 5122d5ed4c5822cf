package recorder

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// ledgerSumBits is how many bits of a ledger mark are a sum over the sequence. Both are in one word, so that one write
// changes both.
const ledgerSumBits = 16

// ledgerWord returns a ledger mark: a sequence of the ledger, and a sum that differs between ledgers and between
// processes.
func ledgerWord(seq uint64, born time.Time, name uint64) uint64 {
	sum := name ^ uint64(born.UnixMicro())
	sum = (sum ^ seq) * 0x9e3779b97f4a7c15
	return seq<<ledgerSumBits | sum>>(64-ledgerSumBits)
}

// LedgerIs sets the ledger whose sequences Recorded notes. born is when that ledger was made, which identifies it.
// Before the first LedgerIs, Recorded notes nothing.
func (r *Recorder) LedgerIs(born time.Time) {
	if r == nil {
		return
	}
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	if !r.ledgerBorn.Equal(born) {
		r.ledgerBorn, r.ledgerLast = born, 0
	}
}

// Recorded notes that the ledger has stored a record under a sequence.
func (r *Recorder) Recorded(seq uint64) {
	if r == nil {
		return
	}
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	if r.ledgerBorn.IsZero() || seq <= r.ledgerLast {
		return
	}
	r.ledgerLast = seq
	r.written(func() {
		(*atomic.Uint64)(unsafe.Pointer(&r.words[headLedger])).Store(ledgerWord(seq, r.ledgerBorn, r.name))
	})
}

// FormerLedger reads the notes of ended processes that were started later than after. last is the last sequence that,
// by these notes, the ledger made at born had stored; 0 if no note names that ledger. newest is when the newest of
// these processes was started, or after if there is none. after and newest are in nanoseconds since 1970.
func (r *Recorder) FormerLedger(born time.Time, after uint64) (last, newest uint64) {
	newest = after
	if r == nil {
		return 0, newest
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	for name, l := range r.former.lives {
		if l.started <= after {
			continue
		}
		newest = max(newest, l.started)
		if seq := l.ledger >> ledgerSumBits; l.ledger != 0 && l.ledger == ledgerWord(seq, born, name) {
			last = max(last, seq)
		}
	}
	return last, newest
}
