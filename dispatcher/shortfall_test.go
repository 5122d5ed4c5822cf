package dispatcher

import (
	"fmt"
	"testing"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// TestLowEstimatesAreRaised checks that a call reserves its estimate times the worst recent ratio of report and
// estimate, and the bounds of that.
func TestLowEstimatesAreRaised(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	reserves := func(what, body, want string) {
		t.Helper()
		if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Bill.Reserved) != want {
			t.Errorf("%s: a call reserves %v and %d, want %s", what, j.Costs, j.Bill.Reserved, want)
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
// itself was more.
func TestRaisedEstimatesFit(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	by.API.Rules.Shared[0].Rate.Burst = 1000
	by.API.Rules.Shared[2].Budget.Count = 4000
	w.settleUnits(tolled(t, w, by, `{"in":100,"max":100}`), answered(200, 500, 500))
	j := tolled(t, w, by, `{"in":100,"max":100}`)
	if fmt.Sprint(j.Costs) != "[1000 1 4000]" || j.Bill.Reserved != 2000+1250+5000 {
		t.Errorf("a call reserves %v, and its intent holds %d", j.Costs, j.Bill.Reserved)
	}
	by.API.Rules.Shared[2].Account, by.API.Rules.In = "acme", &bucket.Membership{Account: "acme", Headroom: 10}
	if j := tolled(t, w, by, `{"in":100,"max":100}`); j.Costs[2] != 3600 {
		t.Errorf("a call reserves %v of an account's budget of 4000 less a tenth", j.Costs)
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
	if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Bill.Reserved, j.Bill.Estimates) != "[1600 1 5700] 5700 [400 1 2850]" {
		t.Errorf("a call reserves %v, and its intent holds %d, by the estimates %v", j.Costs, j.Bill.Reserved, j.Bill.Estimates)
	}
	for range learnedFrom {
		w.settleUnits(tolled(t, w, by, body), answered(200, 100, 60))
	}
	if j := tolled(t, w, by, body); fmt.Sprint(j.Costs, j.Bill.Reserved) != "[400 1 2850] 2850" {
		t.Errorf("a call reserves %v, and its intent holds %d, after enough answers as estimated", j.Costs, j.Bill.Reserved)
	}
}

// TestLowEstimatesAreRecorded checks that a record has a job's estimates only if the call took more of a limit, and
// that these are the job's own estimates, not the raised ones.
func TestLowEstimatesAreRecorded(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	const body = `{"in":100,"max":60}`
	for _, c := range []struct {
		in, out int64
		want    string
	}{{500, 60, "[400 1 2850]"}, {500, 60, "[400 1 2850]"}, {100, 60, "[]"}, {10, 10, "[]"}} {
		j := tolled(t, w, by, body)
		j.Bill.Taken = j.Costs
		if s := w.settleUnits(j, answered(200, c.in, c.out)); s.actual != nil {
			j.Bill.Taken = s.actual
		}
		if got := fmt.Sprint(j.Bill.Low()); got != c.want {
			t.Errorf("a call that took %d and %d was estimated at %s, want %s", c.in, c.out, got, c.want)
		}
	}
	fixed := modelAPI()
	fixed.Prices, fixed.Rules.Shared[0].Cost = nil, ingest.Units(9)
	if j := tolled(t, w, &lane.Terms{API: fixed}, body); j.Bill.Estimates != nil {
		t.Errorf("an api whose answers say nothing has the estimates %v", j.Bill.Estimates)
	}
}

// TestWorstOfSmallEstimates checks that the worst estimate is found by its exact ratio, also among small estimates,
// which are rounded up when they are raised.
func TestWorstOfSmallEstimates(t *testing.T) {
	var s shortfall
	for _, r := range [][2]int64{{10, 15}, {1, 2}, {100, 100}} {
		s.hear(r[0], r[1])
	}
	if got := s.raise(10); got != 20 {
		t.Errorf("an estimate of 10 is raised to %d after one of 1 that should have been 2", got)
	}
}

// TestAnswersCountOnce checks that an answer counts once for a term that both a limit and the price have, so that the
// worst estimate is remembered for as many answers as are kept.
func TestAnswersCountOnce(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	const body = `{"in":100,"max":60}` // 400 tokens
	w.settleUnits(tolled(t, w, by, body), answered(200, 500, 60))
	for range learnedFrom - 1 {
		w.settleUnits(tolled(t, w, by, body), answered(200, 100, 60))
	}
	if j := tolled(t, w, by, body); j.Costs[0] != 800 {
		t.Errorf("a call reserves %v when the low estimate is the oldest of those that are kept", j.Costs)
	}
	w.settleUnits(tolled(t, w, by, body), answered(200, 100, 60))
	if j := tolled(t, w, by, body); j.Costs[0] != 400 {
		t.Errorf("a call reserves %v when the low estimate is no longer kept", j.Costs)
	}
}

// TestTakeoverRecallsLowEstimates checks that a replica which has made many calls learns from the records of a
// partition that it takes over. What it learned lasts until it has had as many answers as are kept.
func TestTakeoverRecallsLowEstimates(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	by.API.Rules.Shared[0].Cost[1].Learn = 0
	const body = `{"in":100,"max":60}` // 400 tokens
	right := func(n int) {
		for range n {
			w.settleUnits(tolled(t, w, by, body), answered(200, 100, 60))
		}
	}
	right(2 * learnedFrom)
	for range 2 { // it takes the partition over twice
		w.settlements.recall(&ledger.Record{
			Limits: []string{"tokens"}, Estimated: []int64{500}, Costs: []int64{2000}, Billed: deadletter.BilledYes,
		}, nil)
		for _, n := range []int{0, leastTold, learnedFrom - leastTold - 1} {
			if right(n); tolled(t, w, by, body).Costs[0] != 1600 {
				t.Errorf("a call reserves %v, %d answers after a takeover", tolled(t, w, by, body).Costs, n)
			}
		}
		if right(1); tolled(t, w, by, body).Costs[0] != 400 {
			t.Errorf("a call reserves %v, %d answers after a takeover", tolled(t, w, by, body).Costs, learnedFrom)
		}
	}
}

// TestSilentCallsTakeWhatTheyReserved checks that a call whose answer broke off, or reports nothing, counts no less
// than it had reserved, whatever raised the reservation.
func TestSilentCallsTakeWhatTheyReserved(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	w.settlements.recall(&ledger.Record{
		Limits: []string{"tokens", "calls", "spend"}, Estimated: []int64{500, 1, 3000}, Costs: []int64{2000, 1, 6000},
		Billed: deadletter.BilledYes,
	}, nil)
	for what, r := range map[string]httpcall.Response{
		"broke off": cut(answered(200, 10, 20)), "is silent": {Sent: true, Status: 200}, "never came": {Sent: true},
	} {
		j := tolled(t, w, by, `{"in":100,"max":60}`)
		if s := w.settleUnits(j, r); s.actual != nil || s.price != 5700 {
			t.Errorf("a call whose answer %s takes %v and %d, and it had reserved %v", what, s.actual, s.price, j.Costs)
		}
	}
}

// TestUnexpectedUnitsAreReserved checks that the sum of a cost is raised if terms of which nothing was expected made it
// too low, and that the sum stays if the other terms were enough.
func TestUnexpectedUnitsAreReserved(t *testing.T) {
	in := ingest.Term{From: ingest.Source{Pointer: "/in"}, Settle: ingest.Source{Pointer: "/usage/in"}}
	written := ingest.Term{Settle: ingest.Source{Pointer: "/usage/out"}}
	for _, c := range []struct {
		what      string
		cost      ingest.Cost
		body      string
		in, out   int64
		want, big int64 // what a call and one of ten times the estimate reserve then
	}{
		{"enough", ingest.Cost{in, written}, `{"in":100}`, 20, 80, 100, 1000},
		{"written beyond the estimate", ingest.Cost{in, written}, `{"in":100}`, 20, 380, 400, 1000},
		{"nothing known before", ingest.Cost{written}, `{"in":100}`, 0, 700, 700, 700},
	} {
		api := modelAPI()
		api.Prices, api.Rules.Shared = nil, api.Rules.Shared[:1]
		api.Rules.Shared[0].Cost = c.cost
		w, by := bareCaller(), &lane.Terms{API: api}
		w.settleUnits(tolled(t, w, by, c.body), answered(200, c.in, c.out))
		if j := tolled(t, w, by, c.body); j.Costs[0] != c.want {
			t.Errorf("%s: a call reserves %v, want %d", c.what, j.Costs, c.want)
		}
		if j := tolled(t, w, by, `{"in":1000}`); j.Costs[0] != c.big {
			t.Errorf("%s: a call of ten times the estimate reserves %v, want %d", c.what, j.Costs, c.big)
		}
		for range learnedFrom {
			w.settleUnits(tolled(t, w, by, c.body), answered(200, c.in, 1))
		}
		if j := tolled(t, w, by, c.body); c.in > 0 && j.Costs[0] != 100 || j.Costs[0] > 100 {
			t.Errorf("%s: a call reserves %v after as many low answers as are kept", c.what, j.Costs)
		}
	}
}

// TestEndsOfOperationsAreRecalled checks that the record of an operation's end teaches what the operation took in all,
// for each limit of which it took more than its call was charged.
func TestEndsOfOperationsAreRecalled(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	w.settlements.recall(&ledger.Record{
		Limits: []string{"tokens", "calls", "spend"}, Polled: true, Operation: &queue.Operation{Costs: []int64{1000, 1, 9000}},
		Estimated: []int64{500, 1, 3000}, Costs: []int64{1000, 0, 0}, Billed: deadletter.BilledYes,
	}, nil)
	if j := tolled(t, w, by, `{"in":100,"max":60}`); fmt.Sprint(j.Costs) != "[1600 1 2850]" {
		t.Errorf("a call reserves %v", j.Costs)
	}
	w.settlements.recall(&ledger.Record{
		Limits: []string{"tokens"}, Polled: true, Estimated: []int64{1}, Costs: []int64{1000}, Billed: deadletter.BilledYes,
	}, nil)
	if j := tolled(t, w, by, `{"in":100,"max":60}`); j.Costs[0] != 1600 {
		t.Errorf("a call reserves %v by an end that does not say what the call was charged", j.Costs)
	}
}
