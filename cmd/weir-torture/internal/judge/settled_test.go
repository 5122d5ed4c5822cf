package judge

import (
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
	"weir/dispatcher/ledger"
)

// settled is right, with calls of 500 tokens each. The first two had reserved 25.
func settled() *Evidence {
	e := right(false)
	e.Options.Settled = true
	e.Charges = Charges{}
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		a.Used, a.Charge = fakeapi.Tokens{Input: 125, Output: 375}, 6_000
		c := Charge{Outcome: ledger.Done, Took: 500, Reserved: 500}
		if i < 2 {
			c.Reserved = 25
		}
		if job := JobOf(a); e.Ends.Results[job] == 0 {
			c.Outcome = "unknown"
			e.Bill.InDoubt += a.Charge
		} else {
			e.Bill.Spent += a.Charge
		}
		e.Charges[JobOf(a)] = []Charge{c}
		a.At = int64(i) * int64(2*time.Second)
	}
	return e
}

// TestJudgeSettled checks that what answers told must have been charged, in the limit and in the bill.
func TestJudgeSettled(t *testing.T) {
	crowd := func(e *Evidence, calls int) { // all in one window
		for i := range calls {
			e.Arrivals[i].At = int64(i) * int64(250*time.Millisecond)
		}
	}
	for _, c := range []struct {
		name   string
		spoil  func(e *Evidence)
		breaks []string
	}{
		{"all well", func(*Evidence) {}, nil},
		{"a window over by what two calls took beyond their reservations", func(e *Evidence) { crowd(e, 7) }, nil},
		{"a window over by more", func(e *Evidence) { crowd(e, 8) }, []string{"settled"}},
		{"a window over by calls that took what they had reserved", func(e *Evidence) {
			crowd(e, 6)
			e.Charges["k-0"][0].Reserved, e.Charges["k-1"][0].Reserved = 500, 500
		}, []string{"settled"}},
		{"charged the estimate", func(e *Evidence) {
			e.Charges["k-0"][0].Took = 25
		}, []string{"settled"}},
		{"not recorded", func(e *Evidence) { delete(e.Charges, "k-5") }, []string{"settled"}},
		{"charged the estimate by recovery", func(e *Evidence) {
			e.Charges["k-0"][0].Took, e.Charges["k-0"][0].Lone = 25, true
		}, []string{"settled"}},
		{"charged the estimate by recovery, after its notes were lost", func(e *Evidence) {
			e.Charges["k-0"][0].Took, e.Charges["k-0"][0].Lone = 25, true
			e.Options.PowerLosses = 1
		}, nil},
		{"refused before its call", func(e *Evidence) {
			e.Charges["k-4"] = slices.Insert(e.Charges["k-4"], 0, Charge{Outcome: ledger.PushedBack})
		}, nil},
		{"a call that weir spend lacks", func(e *Evidence) { e.Bill.Spent -= 6_000 }, []string{"the bill"}},
		{"a call that weir spend has twice", func(e *Evidence) { e.Bill.Spent += 6_000 }, []string{"the bill"}},
		{"off by a millionth", func(e *Evidence) { e.Arrivals[7].Charge++ }, []string{"the bill"}},
		{"billed, and neither spent nor in doubt", func(e *Evidence) { e.Bill.InDoubt = 0 }, []string{"the bill"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := settled()
			c.spoil(e)
			r := Judge(e)
			var names []string
			for _, f := range r.Findings {
				if f.Outcome != bucket.Pass {
					names = append(names, f.Name)
				}
			}
			if !slices.Equal(names, c.breaks) {
				t.Errorf("broken: %q, want %q: %+v", names, c.breaks, r)
			}
		})
	}
	if r := Judge(settled()); r.Exceeding != 2 || r.Settled != 9 {
		t.Errorf("%d took more than reserved, %d of 9 jobs settled", r.Exceeding, r.Settled)
	}
	e := settled()
	crowd(e, 7)
	if r := Judge(e); r.TokensByTold == 0 || r.TokensFullest != 3_500 {
		t.Errorf("%d windows over by what two calls took beyond that, %d tokens in the fullest", r.TokensByTold, r.TokensFullest)
	}
	for n := range 100 {
		if h := plan.TokensOf(n); h.In+h.Out == h.GuessedIn+h.GuessedOut || h.GuessedIn < 1 || h.GuessedOut < 1 {
			t.Errorf("job %d: %+v", n, h)
		}
	}
}
