package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestSharedLimitsOfFormerRules checks that costs of a job made ready under rules with more limits, or fewer, are
// taken in for the limits that both have, and that nothing is known of a limit that a new policy brings.
func TestSharedLimitsOfFormerRules(t *testing.T) {
	rate, now := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, someTime
	p := &Policy{Rules: bucket.Rules{Shared: []bucket.Limit{{Name: "account", Rate: &rate}, {Name: "concurrent", InFlight: 3}}}}
	limits := newSharedLimits(p, &grants{})
	for _, costs := range [][]int64{nil, {2}, {2, 1, 7}} {
		limits.granted(&Job{Costs: costs}, now)
		limits.begin(&Job{Costs: costs}, now)
	}
	if account := limits.named("account"); account.usual() != 2 || account.tat <= now || account.started.units[account.started.at(&rate, now)] != 4 {
		t.Errorf("of two calls of 2 units is known: %+v", account)
	}
	if limits.named("tokens") != nil || limits.named("") != nil {
		t.Error("a limit that the rules do not have was found")
	}
	if l := newSharedLimits(p, &grants{}).named("account"); l.seen || l.tat != 0 || l.usual() != 1 {
		t.Errorf("of a new policy's limit is known: %+v", l)
	}
}

// TestSharedLimitLevels checks that the store's levels say how much of a quota is left, and that grants take from it.
func TestSharedLimitLevels(t *testing.T) {
	quota := bucket.Quota{Count: 100, Per: time.Hour, Window: bucket.Fixed}
	limits := newSharedLimits(&Policy{Rules: bucket.Rules{Shared: []bucket.Limit{{Name: "hourly", Quota: &quota}}}}, &grants{})
	near := func() (n float64, known bool) {
		n, known, _ = limits.near(someTime, 0, 0, time.Second)
		return n, known
	}
	if n, known := near(); known || n != MaxStaged {
		t.Errorf("a quota whose level is not known lets %v calls start, known %t", n, known)
	}
	limits.Learn([]bucket.Level{{Limit: *limits[0].Limit, Used: 90, Count: 100, End: someTime.Add(time.Minute)}, {Limit: bucket.Limit{Name: "other"}}})
	if n, known := near(); !known || n != 9 {
		t.Errorf("10 units are left: %v calls beside one, known %t", n, known)
	}
	limits.granted(&Job{Costs: []int64{4}}, someTime)
	if n, _ := near(); n != 6.0/4-1 {
		t.Errorf("6 units are left for calls of 4: %v calls beside one", n)
	}
	limits[0].refused(&Job{}, someTime.Add(time.Minute))
	if n, _, by := limits.near(someTime, 0, 0, time.Second); n != 0 || by != "hourly" {
		t.Errorf("after a refusal %q lets %v calls start beside one", by, n)
	}
}

// TestMissedCallUsesNothing checks that a call that was taken back counts in no limit's use.
func TestMissedCallUsesNothing(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 100, Per: time.Minute, Burst: 10}})
	d.add("a")
	for range 5 {
		fx := d.turn()
		if len(fx.Asks) > 0 {
			d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}}}})
		}
		for _, j := range fx.Start {
			if used := d.At(d.now).Uses()[0].Used; used != 1 {
				t.Errorf("%d units are used by a call", used)
			}
			d.Unstart(j)
			if used := d.At(d.now).Uses()[0].Used; used != 0 {
				t.Errorf("%d units are used by a call that was taken back", used)
			}
			return
		}
	}
	t.Error("no call started")
}

// TestLearnNoticesThatMoreIsLeft checks that jobs ask again after an answer to another process has said that more is
// left: whether the excess was read before, or only refused a job in between.
func TestLearnNoticesThatMoreIsLeft(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 60, Per: time.Hour, Burst: 1}}
	limit.Left.Header = "X-Left"
	s := New(&Policy{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: *limit.Rate}, Shared: []bucket.Limit{limit}}}, Pace{}, nil)
	excess := func(units int64) []bucket.Level { return []bucket.Level{{Limit: limit, Excess: units}} }
	refuse := func(units int64) {
		in := answering{step: step{Schedule: s, now: someTime}}
		q := &KeyQueue{}
		in.wait(q, &Job{Queue: q, Costs: []int64{1}}, &Job{Queue: q, Costs: []int64{1}}, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Hour), Excess: units})
	}
	for i, c := range []struct {
		refused int64
		levels  []bucket.Level
		eased   bool
	}{
		{0, nil, false},
		{0, excess(9), false},
		{0, excess(9), false},
		{0, excess(8), true},
		{0, excess(12), false},
		{0, nil, true},
		{7, nil, true},
		{7, excess(7), false},
		{7, excess(3), true},
		{0, nil, true},
		{0, nil, false},
	} {
		if refuse(c.refused); s.Shared.Learn(c.levels) != c.eased {
			t.Errorf("step %d: an answer has said that more is left: %v, want %v", i, !c.eased, c.eased)
		}
	}
}

// TestDearCallWaitsAloneForTheVendor checks that while a dear call waits for the vendor's count, cheaper calls may use
// what the vendor has left.
func TestDearCallWaitsAloneForTheVendor(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 600, Per: time.Minute, Burst: 100}}
	s := New(&Policy{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: *limit.Rate}, Shared: []bucket.Limit{limit}}}, Pace{}, nil)
	for units, shut := range map[int64]bool{0: true, 40: false} {
		s.gate.open()
		in, dear := answering{step: step{Schedule: s, now: someTime}}, &Job{Queue: &KeyQueue{}, Costs: []int64{31}}
		in.wait(dear.Queue, dear, dear, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Minute), Excess: units})
		if s.gate.isShut(someTime) != shut {
			t.Errorf("with an excess of %d units other keys wait: %v, want %v", units, !shut, shut)
		}
	}
}

// TestForecastOfWhatIsLeft checks that units that only the vendor counts are taken as used until the vendor's count
// begins anew, and in the best case as free, since the next answer may say that enough is left.
func TestForecastOfWhatIsLeft(t *testing.T) {
	quota := bucket.Quota{Count: 100, Per: time.Hour, Window: bucket.Fixed}
	limit := bucket.Limit{Name: "hourly", Quota: &quota}
	limit.Left.Header = "X-Left"
	limits := newSharedLimits(&Policy{Rules: bucket.Rules{Shared: []bucket.Limit{limit}}}, &grants{})
	soon, end := someTime.Add(time.Minute), someTime.Add(30*time.Minute)
	limits.Learn([]bucket.Level{{Limit: limit, Used: 100, Count: 100, End: end, Excess: 40, ExcessUntil: soon}})
	l := &limits[0]
	for _, c := range []struct {
		ahead        float64
		shut         bucket.Micros
		likely, best bucket.Micros
	}{
		{0, 0, soon, 0}, {39, 0, soon, 0}, {40, 0, end, end}, {0, soon, soon, someTime}, {40, soon, end, end},
	} {
		if at := l.after(c.ahead, someTime, c.shut, 0, time.Second, likely); at != c.likely {
			t.Errorf("behind %v: in %s, want %s", c.ahead, someTime.Until(at), someTime.Until(c.likely))
		}
		if at := l.after(c.ahead, someTime, c.shut, 0, time.Second, bestCase); at != c.best {
			t.Errorf("behind %v at best: in %s, want %s", c.ahead, someTime.Until(at), someTime.Until(c.best))
		}
	}
}
