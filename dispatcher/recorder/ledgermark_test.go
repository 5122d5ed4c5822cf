package recorder

import (
	"testing"
	"time"
)

// TestLedgerMark checks that the last sequence that a process knew its ledger to have stored is known after its
// death, only for that ledger and only if the mark is whole.
func TestLedgerMark(t *testing.T) {
	born := time.Date(2027, 3, 1, 0, 0, 0, 1000, time.UTC)
	r := open(t, t.TempDir(), small)
	r.Recorded(3) // of no ledger
	if r.header()[headLedger] != 0 {
		t.Error("something is noted of a ledger that nobody named")
	}
	r.LedgerIs(born.Add(-time.Hour))
	r.Recorded(900)
	r.LedgerIs(born)
	for _, seq := range []uint64{7, 41, 40} {
		r.Recorded(seq)
	}
	r.die(t)

	next := open(t, r.dir, small)
	last, started := next.FormerLedger(born, 0)
	if last != 41 {
		t.Errorf("the ledger had %d, want 41", last)
	}
	if other, _ := next.FormerLedger(born.Add(time.Second), 0); other != 0 {
		t.Errorf("another ledger had %d", other)
	}
	if again, newest := next.FormerLedger(born, started); again != 0 || newest != started {
		t.Errorf("of later processes: %d, the newest of %d", again, newest)
	}
	for bit := range 64 {
		l := next.former.lives[r.name]
		l.ledger ^= 1 << bit
		if torn, _ := next.FormerLedger(born, 0); torn != 0 && bit < ledgerSumBits {
			t.Errorf("with bit %d changed it had %d", bit, torn)
		}
		l.ledger ^= 1 << bit
	}
	var none *Recorder
	none.LedgerIs(born)
	none.Recorded(1)
	if last, _ := none.FormerLedger(born, 0); last != 0 {
		t.Error("what is not there knows something")
	}
}
