package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// TestLeftUnderWay: calls that a former owner may have left count, unless it gave the partition up.
func TestLeftUnderWay(t *testing.T) {
	for leftover, want := range map[bucket.Micros]int32{1: 2, 0: 0} {
		p, q := &partition{Partition: schedule.Partition{Leftover: leftover}}, &schedule.KeyQueue{Orphaned: 2}
		if p.leaveLocked(q); q.Orphaned != want {
			t.Errorf("until %d %d calls are left, want %d", leftover, q.Orphaned, want)
		}
	}
}

// TestLeftCallsRunByTheirOwnTimeout: calls of a lost owner may run for as long as when they began, even if the api's
// timeout is shorter now.
func TestLeftCallsRunByTheirOwnTimeout(t *testing.T) {
	d := newShared(t)
	q := payQueue(t, d)
	for _, ended := range []bool{false, true} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		w.terms.api.Timeout, p.Ended = time.Second-2*ledger.ServerSkew, ended
		p.takeMarker(markerEntry(t, queue.IntentEntry, 11, []queue.Intent{{Seq: 1, Call: 1, KeySum: queue.KeySum("a"), Timeout: time.Minute}}))
		before := w.now()
		if p.markersLoaded(); before.Until(p.Leftover) < time.Minute {
			t.Errorf("ended %v: calls that may run for a minute are left for %s", ended, before.Until(p.Leftover))
		}
	}
}

// TestCallsOfAProcessThatEnded: an owner whose process has ended leaves no call, unless it may have counted calls of
// its predecessor, or may only have been cut off.
func TestCallsOfAProcessThatEnded(t *testing.T) {
	d := newShared(t)
	q := payQueue(t, d)
	for _, c := range []struct {
		ended   bool
		timeout time.Duration
		left    bool
	}{{true, -2 * ledger.ServerSkew, false}, {true, time.Minute, true}, {false, -2 * ledger.ServerSkew, true}} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		w.terms.api.Timeout, p.Ended = c.timeout, c.ended // before it was taken over, by the clock of the servers
		if until := p.leftUntilLocked(); (until != 0) != c.left {
			t.Errorf("%+v: calls are left until %v", c, until)
		}
	}
	_, p := takingOver(t, d, q, true, nil)
	if until := p.leftUntilLocked(); until != 0 {
		t.Errorf("where no other can have owned the partition calls are left until %v", until)
	}
}
