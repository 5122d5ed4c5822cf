package takeover

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// TestLeftUnderWay checks that calls count that a former owner may have left running, unless that owner gave the
// partition up.
func TestLeftUnderWay(t *testing.T) {
	for leftover, want := range map[bucket.Micros]int32{1: 2, 0: 0} {
		p, q := &reader{Owned: &lane.Owned{Partition: schedule.Partition{Leftover: leftover}}}, &schedule.KeyQueue{}
		q.Orphaned = 2
		if p.leaveLocked(q); q.Orphaned != want {
			t.Errorf("until %d %d calls are left, want %d", leftover, q.Orphaned, want)
		}
	}
}

// TestLeftCallsRunByTheirOwnTimeout checks that calls of a lost owner count for the timeout under which they began,
// even if the api's timeout is shorter now.
func TestLeftCallsRunByTheirOwnTimeout(t *testing.T) {
	d := newEnv(t)
	q := payQueue(t, d)
	for _, ended := range []bool{false, true} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		w.Terms.API.Timeout, p.Ended = time.Second-2*ledger.ServerSkew, ended
		p.reader.takeMarker(markerEntry(t, queue.IntentEntry, 11, []queue.Intent{{Seq: 1, Call: 1, KeySum: queue.KeySum("a"), Timeout: time.Minute}}))
		before := w.Now()
		if p.reader.markersLoaded(); before.Until(p.Leftover) < time.Minute {
			t.Errorf("ended %v: calls that may run for a minute are left for %s", ended, before.Until(p.Leftover))
		}
	}
}

// TestCallsOfAProcessThatEnded checks that an owner whose process has ended leaves no call, unless it may have counted
// calls of its predecessor, or may only have been cut off.
func TestCallsOfAProcessThatEnded(t *testing.T) {
	d := newEnv(t)
	q := payQueue(t, d)
	for _, c := range []struct {
		ended   bool
		timeout time.Duration
		left    bool
	}{{true, -2 * ledger.ServerSkew, false}, {true, time.Minute, true}, {false, -2 * ledger.ServerSkew, true}} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		w.Terms.API.Timeout, p.Ended = c.timeout, c.ended // before it was taken over, by the clock of the servers
		if until := p.reader.leftUntilLocked(); (until != 0) != c.left {
			t.Errorf("%+v: calls are left until %v", c, until)
		}
	}
	_, p := takingOver(t, d, q, true, nil)
	if until := p.reader.leftUntilLocked(); until != 0 {
		t.Errorf("where no other can have owned the partition calls are left until %v", until)
	}
}

// TestUnreadableEpochMakesKeysWait checks that an owner whose epoch its server cannot read may have left calls whose
// intents are damaged too. Every key of the partition waits, also one without an intent.
func TestUnreadableEpochMakesKeysWait(t *testing.T) {
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	open := func(died bool) (*rig, *Takeover) {
		js := natstest.Connect(t, ns)
		d := newEnvOn(t, js)
		d.Shared = false
		return takingOver(t, d, payQueue(t, d), died, nil)
	}
	waits := func(w *rig, p *Takeover) bool {
		line := w.Sched.Push("a", 1, &p.Partition)
		return w.pace.floorLocked(line, p.reader.unsureLocked(line)) > w.Now()
	}
	if waits(open(true)) {
		t.Error("after an owner that died a key without an intent waits")
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	natstest.Spoil(t, dir, "WEIR_pay_0", "weir.o.pay.0")
	ns = natstest.Start(t, dir, 0)
	if !waits(open(false)) {
		t.Error("after an owner whose epoch is damaged a key without an intent does not wait")
	}
}
