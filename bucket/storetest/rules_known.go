package storetest

import (
	"time"

	"weir/bucket"
)

// changedTwice checks two changes: the first to a window that no longer holds the last call, the second to a window
// that does.
func changedTwice(b *table) {
	b.lay(only(windowedLimit("a", 1, 1, 1)))
	b.ask(bucket.Ask{})
	b.clock.now = Start.Add(3200 * time.Millisecond)
	b.apply(only(windowedLimit("a", 2, 2, 2)))
	b.settle()
	b.apply(only(windowedLimit("a", 1, 60, 1)))
	if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until < Start.Add(time.Minute) || got.Wait.Until > b.clock.now.Add(time.Minute) {
		b.Errorf("%+v", got)
	}
}

// begunAfterItsCalls replaces a quota by a rate when the calls are no longer in the quota's window. It then changes
// the rate to one whose window still has the calls; in one case it raises the rate in between.
func begunAfterItsCalls(b *table) {
	for _, raised := range []int64{0, 4} {
		b.lay(only(quota("a", bucket.Quota{Count: 30, Window: bucket.Sliding, Per: 2 * time.Second})))
		b.ask(bucket.Ask{Want: 5})
		b.clock.now = Start.Add(4 * time.Second)
		b.apply(only(windowedLimit("a", 2, 2, 2)))
		b.settle()
		b.clock.now = Start.Add(10 * time.Second)
		if raised > 0 {
			b.apply(only(windowedLimit("a", raised, 2, 2)))
			b.settle()
		}
		b.clock.now = Start.Add(40 * time.Second)
		b.apply(only(windowedLimit("a", 5, 60, 5)))
		if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until < Start.Add(time.Minute) || got.Wait.Until > b.clock.now.Add(time.Minute) {
			b.Errorf("raised to %d: %+v", raised, got)
		}
	}
}

// begunBehindALateCall begins a rate and lowers the jitter at once. The last call may still arrive as late as the
// former jitter allows.
func begunBehindALateCall(b *table) {
	late := bucket.Rules{Key: fast, Jitter: 400 * time.Millisecond}
	b.lay(late)
	b.ask(bucket.Ask{})
	b.apply(only(windowedLimit("a", 1, 1, 1)))
	if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until < Start.Add(1400*time.Millisecond) || got.Wait.Until > Start.Add(3*time.Second) {
		b.Errorf("%+v", got)
	}
}

// mayBeForgotten applies rules under which an idle bucket is soon forgotten, and then the former rules again.
func mayBeForgotten(b *table) {
	of := func(burst int64) bucket.Rules {
		return bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: burst, Counts: bucket.ByTokens}}}
	}
	b.lay(of(10))
	b.ask(bucket.Ask{})
	b.clock.now += 60_000_000
	b.ask(bucket.Ask{Key: "another"})
	b.apply(of(2))
	b.settle()
	b.apply(of(10))
	if got := b.ask(bucket.Ask{Want: 10}); len(got.Grants) != 2 {
		b.Errorf("%d calls at once, want the 2 that the key was free for in what is remembered", len(got.Grants))
	}
}

// forgottenTwoChangesAgo applies rules under which keys are remembered for longer, and then other rules. A key that was
// not called in between is forgotten, so the store must assume that it was called until the first change.
func forgottenTwoChangesAgo(b *table) {
	b.lay(bucket.Rules{Key: windowed(5, 1, 5)})
	b.ask(bucket.Ask{})
	b.clock.now = Start.Add(10 * time.Second)
	b.ask(bucket.Ask{Key: "another"})
	last := b.clock.now
	b.apply(bucket.Rules{Key: windowed(5, 60, 5)})
	b.settle()
	b.clock.now = Start.Add(20 * time.Second)
	b.apply(bucket.Rules{Key: windowed(6, 60, 6)})
	if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until < last.Add(time.Minute) || got.Wait.Until > last.Add(time.Minute+2*time.Second) {
		b.Errorf("%+v", got)
	}
}

// newAmongForgotten also changes the rules twice, but asks for a key that was never called. The key need not wait,
// because the calls that the store may have forgotten at the first change are more than a window old.
func newAmongForgotten(b *table) {
	b.lay(bucket.Rules{Key: windowed(5, 1, 5)})
	b.ask(bucket.Ask{})
	b.clock.now = Start.Add(10 * time.Second)
	b.apply(bucket.Rules{Key: windowed(1, 60, 1)})
	b.settle()
	b.clock.now = Start.Add(5 * time.Minute)
	b.ask(bucket.Ask{Key: "another"})
	b.clock.now += 1_000_000
	b.apply(bucket.Rules{Key: windowed(2, 60, 2)})
	if got := b.ask(bucket.Ask{Key: "new"}); len(got.Grants) != 1 {
		b.Errorf("%+v", got)
	}
}
