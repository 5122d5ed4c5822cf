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

// TestLeftUnderWay: where intents tell what was begun, as much counts; otherwise as much as the key may have in flight.
func TestLeftUnderWay(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, InFlight: 3}}
	w := &apiWorker{s: schedule.New(&schedule.Policy{Rules: rules}, schedule.Pace{}, func(string) bucket.Micros { return 0 })}
	p := &partition{w: w, Partition: schedule.Partition{Leftover: 1}}
	p.Of = p
	for _, c := range []struct {
		untold bool
		left   int32
		jobs   int
		want   int32
	}{{false, 2, 5, 2}, {false, 0, 5, 0}, {true, 0, 5, 3}, {true, 0, 1, 1}} {
		p.untold = c.untold
		q := &schedule.KeyQueue{Partition: &p.Partition, Limits: &rules.Key, Orphaned: c.left}
		for k := range c.jobs {
			q.Enqueue(uint64(k + 1))
		}
		if partitionOf(q).leaveLocked(q); q.Orphaned != c.want {
			t.Errorf("%+v: %d are left", c, q.Orphaned)
		}
		q.Partition = &schedule.Partition{Of: &partition{}}
		if partitionOf(q).leaveLocked(q); q.Orphaned != 0 {
			t.Errorf("%+v: %d are left by an owner that gave the partition up", c, q.Orphaned)
		}
	}
}

// TestLeftCallsRunByTheirOwnTimeout: calls of an owner that was lost may run for as long as they might when they began, though the
// api's timeout is shorter by now.
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

// TestCallsOfAProcessThatEnded: no call is left by an owner whose process has ended, unless it may have counted calls of one
// before, or can have been cut off only.
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
