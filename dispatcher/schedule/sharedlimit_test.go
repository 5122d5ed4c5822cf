package schedule

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

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
		in.wait(q, &Job{Queue: q, Call: limits.Call{Costs: []int64{1}}}, &Job{Queue: q, Call: limits.Call{Costs: []int64{1}}}, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Hour), Excess: units})
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
		in, dear := answering{step: step{Schedule: s, now: someTime}}, &Job{Queue: &KeyQueue{}, Call: limits.Call{Costs: []int64{31}}}
		in.wait(dear.Queue, dear, dear, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Minute), Excess: units})
		if s.gate.isShut(someTime) != shut {
			t.Errorf("with an excess of %d units other keys wait: %v, want %v", units, !shut, shut)
		}
	}
}
