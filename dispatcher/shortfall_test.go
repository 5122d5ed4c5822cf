package dispatcher

import (
	"fmt"
	"testing"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// TestLowEstimatesAreRaised checks that a call reserves as many times its estimate as the worst recent one should have
// been, and what bounds that.
func TestLowEstimatesAreRaised(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	reserves := func(what, body, want string) {
		t.Helper()
		if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Reserved) != want {
			t.Errorf("%s: a call reserves %v and %d, want %s", what, j.Costs, j.Reserved, want)
		}
	}
	const body = `{"in":100,"max":100}`
	answer := func(body string, in, out int64) { w.settleUnits(tolled(t, w, by, body), answered(200, in, out)) }
	reserves("at first", body, "[600 1 3250] 3250")
	w.settleUnits(tolled(t, w, by, body), answered(429, 500, 500))
	w.settleUnits(tolled(t, w, by, body), cut(answered(200, 500, 500)))
	reserves("after answers that were not billed or broke off", body, "[600 1 3250] 3250")
	answer(body, 50, 100)
	reserves("after an answer within its estimate", body, "[600 1 3250] 3250")
	answer(`{"in":200,"max":200}`, 1000, 300)
	reserves("after an answer of five and 1.5 times its estimates", body, "[1250 1 4750] 4750")
	answer(`{"in":10,"max":10}`, 20, 10)
	reserves("after one of twice its estimate", body, "[1250 1 4750] 4750")
	reserves("an estimate above the largest report", `{"in":3000,"max":4000}`, "[23000 1 49500] 49500")
	reserves("five times an estimate that would exceed the largest report", `{"in":900,"max":100}`, "[1750 1 6000] 6000")
	for range learnedFrom {
		answer(body, 100, 100)
	}
	reserves("after as many right estimates as are kept", body, "[600 1 3250] 3250")
}

// TestRaisedEstimatesFit checks that no raised reservation is more than its limit can let through, unless the estimate
// was.
func TestRaisedEstimatesFit(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	by.API.Rules.Shared[0].Rate.Burst = 1000
	by.API.Rules.Shared[2].Budget.Count = 4000
	w.settleUnits(tolled(t, w, by, `{"in":100,"max":100}`), answered(200, 500, 500))
	j := tolled(t, w, by, `{"in":100,"max":100}`)
	if fmt.Sprint(j.Costs) != "[1000 1 4000]" || j.Reserved != 2000+1250+5000 {
		t.Errorf("a call reserves %v, and its intent holds %d", j.Costs, j.Reserved)
	}
	by.API.Rules.Shared[0].Shadow = true
	if j := tolled(t, w, by, `{"in":100,"max":100}`); j.Costs[0] != 3000 {
		t.Errorf("a call reserves %v of a limit that only watches", j.Costs)
	}
}

// TestLearnedAfterRaised checks that a percentile replaces a raised estimate, and that a term which expects nothing is
// not raised.
func TestLearnedAfterRaised(t *testing.T) {
	api := modelAPI()
	out := &api.Rules.Shared[0].Cost[1]
	out.Learn = 50
	cached := ingest.Term{Settle: ingest.Source{Pointer: "/usage/cached"}}
	api.Rules.Shared[0].Cost = append(api.Rules.Shared[0].Cost, cached)
	w, by := bareCaller(), &lane.Terms{API: api}
	for n := range int64(leastTold) {
		r := answered(200, 100, 100*(1+n))
		r.Units["/usage/cached"] = 9
		w.settleUnits(tolled(t, w, by, `{"in":100,"max":100}`), r)
	}
	if j := tolled(t, w, by, `{"in":100,"max":100}`); j.Costs[0] != 100+5*800 {
		t.Errorf("a call reserves %v, and half of the calls took at most 800 tokens of output", j.Costs)
	}
}

// TestBounded checks the reservation of a raised estimate by a limit of each kind.
func TestBounded(t *testing.T) {
	rules := &bucket.Rules{Headroom: 0, Shared: []bucket.Limit{
		{Name: "rate", Rate: &bucket.Rate{Burst: 50}},
		{Name: "quota", Quota: &bucket.Quota{Count: 60}},
		{Name: "spend", Budget: &bucket.Budget{Quota: bucket.Quota{Count: 70}}},
	}}
	for limit, most := range map[int]int64{0: 50, 1: 60, lane.OfPrice: 70} {
		for _, c := range [][3]int64{{10, 20, 20}, {10, 500, most}, {100, 500, 100}, {40, 30, 30}} {
			if got := bounded(rules, limit, c[0], c[1]); got != c[2] {
				t.Errorf("limit %d: an estimate of %d that was raised to %d reserves %d, want %d", limit, c[0], c[1], got, c[2])
			}
		}
	}
}

// TestLowEstimatesAreRecalled checks that a process raises its first reservations by the records of calls that took
// more than was estimated for them, and by its own answers when these say enough.
func TestLowEstimatesAreRecalled(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	limits := []string{"tokens", "calls", "spend"}
	for _, c := range []ledger.Record{
		{Limits: limits, Estimated: []int64{500, 1, 3000}, Costs: []int64{2000, 1, 6000}, Billed: deadletter.BilledYes},
		{
			Limits: limits, Estimated: []int64{100, 1, 3000}, Costs: []int64{9000, 1, 90_000}, Billed: deadletter.BilledYes,
			Unsettled: []string{"tokens"},
		},
		{Limits: limits, Estimated: []int64{100, 1, 3000}, Costs: []int64{9000, 1, 90_000}, Billed: deadletter.NotBilled},
		{Limits: limits, Estimated: []int64{100}, Costs: []int64{9000}, Billed: deadletter.BilledYes},
	} {
		w.settlements.recall(&c, []string{"spend"})
	}
	const body = `{"in":100,"max":60}` // 400 tokens, for 2850
	if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Reserved, j.Estimates) != "[1600 1 5700] 5700 [400 1 2850]" {
		t.Errorf("a call reserves %v, and its intent holds %d, by the estimates %v", j.Costs, j.Reserved, j.Estimates)
	}
	for range leastTold {
		w.settleUnits(tolled(t, w, by, body), answered(200, 100, 60))
	}
	if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Reserved) != "[400 1 2850] 2850" {
		t.Errorf("a call reserves %v, and its intent holds %d, after enough answers as estimated", j.Costs, j.Reserved)
	}
}

// TestLowEstimatesAreRecorded checks that a record has a job's estimates only if the call took more of a limit, and the
// estimates themselves, not what they were raised to.
func TestLowEstimatesAreRecorded(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	const body = `{"in":100,"max":60}`
	for _, c := range []struct {
		in, out int64
		want    string
	}{{500, 60, "[400 1 2850]"}, {500, 60, "[400 1 2850]"}, {100, 60, "[]"}, {10, 10, "[]"}} {
		j := tolled(t, w, by, body)
		j.Taken = j.Costs
		if s := w.settleUnits(j, answered(200, c.in, c.out)); s.actual != nil {
			j.Taken = s.actual
		}
		if got := fmt.Sprint(j.Low()); got != c.want {
			t.Errorf("a call that took %d and %d was estimated at %s, want %s", c.in, c.out, got, c.want)
		}
	}
	fixed := modelAPI()
	fixed.Prices, fixed.Rules.Shared[0].Cost = nil, ingest.Units(9)
	if j := tolled(t, w, &lane.Terms{API: fixed}, body); j.Estimates != nil {
		t.Errorf("an api whose answers say nothing has the estimates %v", j.Estimates)
	}
}
