package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
)

// TestCallsLeftUnderWayCount: calls that the owner before may still have under way count as the key's calls in flight, for as
// long as one may take, and also when the key has had no job for a while.
func TestCallsLeftUnderWayCount(t *testing.T) {
	start := bucket.Micros(1_700_000_000_000_000)
	now := start
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, Capacity: 1000, InFlight: 3}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := newSchedule(&Policy{Rules: rules}, pace{lead: 24 * time.Millisecond, ahead: leastAhead, late: 4 * time.Millisecond, maxStaged: maxStaged, maxCalls: maxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{open: true, leftover: start.Add(10 * time.Second)}
	running := map[string]int{}
	run := func(until bucket.Micros) {
		for ; now < until; now = now.Add(time.Millisecond) {
			for {
				fx := s.step(now)
				for _, x := range fx.load {
					x.policy = s.policy
					s.loaded(x)
				}
				for _, x := range fx.start {
					running[x.line.key]++
					s.sent(x, now)
				}
				if len(fx.asks) > 0 {
					a, err := store.Reserve(t.Context(), fx.asks)
					s.answer(&fx, reply{sent: now, came: now, answers: a, err: err})
				}
				if s.next(now) > now {
					break
				}
			}
		}
	}
	left := map[string]int32{"none": 0, "two": 2, "three": 3, "empty": 3}
	for key, n := range left {
		s.line(key, p).left = n
		if key != "empty" {
			for k := range 4 {
				s.push(key, uint64(k+1), p)
			}
		}
		s.touch(s.lines[key])
	}
	run(start.Add(5 * time.Second))
	s.allow(false) // the right to call is in doubt for a moment
	run(now.Add(10 * time.Millisecond))
	s.allow(true)
	s.push("empty", 9, p)
	if w := s.waits(s.lines["empty"], now); w.For != WaitInFlight || w.Until == nil {
		t.Errorf("a key whose calls may all be running waits for %+v", w)
	}
	run(p.leftover)
	for key, n := range left {
		if most := int(3 - n); running[key] != most {
			t.Errorf("%s: %d calls were begun beside %d that were left, %d should", key, running[key], n, most)
		}
	}
	run(p.leftover.Add(time.Second))
	for key, want := range map[string]int{"none": 3, "two": 3, "three": 3, "empty": 1} {
		if running[key] != want {
			t.Errorf("%s: %d calls run in the end, want %d", key, running[key], want)
		}
	}
}

// TestLeftUnderWay: where intents tell what was begun, as much counts; otherwise as much as the key may have in flight.
func TestLeftUnderWay(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, InFlight: 3}}
	l := &lane{s: newSchedule(&Policy{Rules: rules}, pace{}, func(string) bucket.Micros { return 0 })}
	p := &part{Partition: Partition{leftover: 1}}
	p.Of = p
	for _, c := range []struct {
		untold bool
		left   int32
		jobs   int
		want   int32
	}{{false, 2, 5, 2}, {false, 0, 5, 0}, {true, 0, 5, 3}, {true, 0, 1, 1}} {
		p.untold = c.untold
		line := &line{part: &p.Partition, limits: &rules.Key, left: c.left}
		for k := range c.jobs {
			line.enqueue(uint64(k + 1))
		}
		if l.leaveLocked(line); line.left != c.want {
			t.Errorf("%+v: %d are left", c, line.left)
		}
		line.part = &Partition{Of: &part{}}
		if l.leaveLocked(line); line.left != 0 {
			t.Errorf("%+v: %d are left by an owner that gave the partition up", c, line.left)
		}
	}
}

// TestLeftCallsRunByTheirOwnTimeout: calls of an owner that was lost may run for as long as they might when they began, though the
// api's timeout is shorter by now.
func TestLeftCallsRunByTheirOwnTimeout(t *testing.T) {
	d := newShared(t)
	q := payQueue(t, d)
	for _, ended := range []bool{false, true} {
		l, p := takingOver(t, d, q, true, new(lease.Membership))
		l.terms.api.Timeout, p.Ended = time.Second-2*ledger.ServerSkew, ended
		l.mark(p, markerEntry(t, queue.IntentEntry, 11, []queue.Intent{{Seq: 1, Call: 1, KeySum: queue.KeySum("a"), Timeout: time.Minute}}))
		before := l.now()
		if l.marked(p); before.Until(p.leftover) < time.Minute {
			t.Errorf("ended %v: calls that may run for a minute are left for %s", ended, before.Until(p.leftover))
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
		l, p := takingOver(t, d, q, true, new(lease.Membership))
		l.terms.api.Timeout, p.Ended = c.timeout, c.ended // before it was taken over, by the clock of the servers
		if until := l.leftUntilLocked(p); (until != 0) != c.left {
			t.Errorf("%+v: calls are left until %v", c, until)
		}
	}
	l, p := takingOver(t, d, q, true, nil)
	if until := l.leftUntilLocked(p); until != 0 {
		t.Errorf("where no other can have owned the partition calls are left until %v", until)
	}
}
