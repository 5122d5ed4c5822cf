package bucket

import (
	"testing"
	"time"
)

// restarted returns the store of a process that starts now from another process's snapshot s.
func restarted(b *table, rules Rules, s Snapshot, called bool) *table {
	b.t.Helper()
	next := newTable(b.t, rules)
	next.clock = b.clock
	next.Restore(s)
	next.ExpectSums(s, called)
	next.Saved(next.Checkpoint(time.Second))
	return next
}

// TestARaisedRateWaitsForItsSnapshot checks that a snapshot that was made at a slow rate does not cover calls of a fast
// one.
func TestARaisedRateWaitsForItsSnapshot(t *testing.T) {
	at := func(count int64) Rules {
		return Rules{Key: fast, Shared: []Limit{{Name: "a", Rate: &Rate{Count: count, Per: 10 * time.Second, Burst: count, Counts: ByWindow}}}}
	}
	b := restarted(newTable(t, at(1)), at(1), Snapshot{}, false)
	b.ask(Ask{})
	b.clock += 20_000_000
	stored := b.Checkpoint(2 * time.Second)
	b.Saved(stored)
	if err := b.Apply(at(30)); err != nil {
		t.Fatal(err)
	}
	calls := len(b.ask(Ask{Want: 30}).Grants)
	b = restarted(b, at(30), stored, true)
	if calls += len(b.ask(Ask{Want: 30}).Grants); calls > 30 {
		t.Errorf("%d calls of 30 in 10 s", calls)
	}
	b.clock += 20_000_000
	b.Saved(b.Checkpoint(time.Second))
	if len(b.ask(Ask{}).Grants) == 0 {
		t.Error("nothing is called afterwards")
	}
}

// TestALimitThatIsNewAtAStart checks a start with the first shared limit of an api that has been called. No snapshot
// says when the last call was.
func TestALimitThatIsNewAtAStart(t *testing.T) {
	rules := Rules{Key: fast, Shared: []Limit{{Name: "a", Rate: &Rate{Count: 10, Per: time.Minute, Burst: 10, Counts: ByWindow}}}}
	b := restarted(newTable(t, rules), rules, Snapshot{}, true)
	if got := b.ask(Ask{}); len(got.Grants) != 0 || got.Wait.Until > b.clock.Add(time.Minute) {
		t.Errorf("%+v", got)
	}
	b = restarted(newTable(t, rules), rules, Snapshot{}, false)
	if len(b.ask(Ask{}).Grants) == 0 {
		t.Error("a call of an api that was never called waits")
	}
}

// TestAQuotaThatWasInFlightAtAStart checks a start with a quota that has the name of a former limit of calls in flight.
// That limit counted no units, so the quota is partial. A quota that the snapshot has counted is not, although it was
// never used.
func TestAQuotaThatWasInFlightAtAStart(t *testing.T) {
	of := func(l Limit) Rules {
		l.Name = "a"
		return Rules{Key: fast, Shared: []Limit{l}}
	}
	for _, window := range []Window{Fixed, Sliding} {
		quota := of(Limit{Quota: &Quota{Count: 10, Window: window, Per: time.Hour}})
		for _, c := range []struct {
			former  Rules
			partial int
		}{{of(Limit{InFlight: 4}), 1}, {quota, 0}} {
			b := restarted(newTable(t, c.former), c.former, Snapshot{}, false)
			if n := len(restarted(b, quota, b.Checkpoint(0), true).Partial()); n != c.partial {
				t.Errorf("%s: %d limits wait for the earlier calls, want %d", window, n, c.partial)
			}
		}
	}
}

// TestAFormerRateCountsInALongerWindow checks a start with a rate whose window no longer holds the calls of a former
// rate, and then a change to a rate whose window does.
func TestAFormerRateCountsInALongerWindow(t *testing.T) {
	at := func(count int64, per time.Duration) Rules {
		return Rules{Key: KeyLimits{Rate: Rate{Count: count, Per: per, Burst: 1, Counts: ByWindow}}}
	}
	b := newTable(t, at(1, 2*time.Second))
	until := b.clock - 3_000_000
	b.Restore(Snapshot{})
	b.Former([]Former{{at(100, time.Second), until}})
	b.Saved(b.Checkpoint(time.Second))
	if len(b.ask(Ask{}).Grants) == 0 {
		t.Error("waits for calls that its window does not hold")
	}
	b.rules = at(30, time.Minute)
	if err := b.Apply(b.rules); err != nil {
		t.Fatal(err)
	}
	b.clock += 10_000_000
	b.Saved(b.Checkpoint(time.Second))
	if got := b.ask(Ask{}); len(got.Grants) != 0 || got.Wait.Until < until.Add(time.Minute) {
		t.Errorf("%+v", got)
	}
}
