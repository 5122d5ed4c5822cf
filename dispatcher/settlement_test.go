package dispatcher

import (
	"fmt"
	"testing"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// millionth returns the weight of a price for so many units.
func millionth(each, per int64) ingest.Weight {
	w, _ := ingest.Weight{}.Times(each, per)
	return w
}

// modelAPI returns an api whose calls cost 0.002, 2.50 for a million input tokens and 10.00 for a million output tokens,
// with limits in tokens and in money.
func modelAPI() *httpcall.API {
	in := ingest.Term{From: ingest.Source{Pointer: "/in"}, Default: 1000, Settle: ingest.Source{Pointer: "/usage/in"}}
	out := ingest.Term{From: ingest.Source{Pointer: "/max"}, Default: 500, Settle: ingest.Source{Pointer: "/usage/out"}, Learn: 90}
	five, each := out, in
	five.Weight, each.Weight = millionth(5, 1), millionth(2_500_000, 1_000_000)
	dear := out
	dear.Weight = millionth(10_000_000, 1_000_000)
	return &httpcall.API{
		Name: "llm", Price: 2000, Prices: ingest.Cost{{From: ingest.Source{Number: 2000}}, each, dear},
		Rules: bucket.Rules{Shared: []bucket.Limit{
			{Name: "tokens", Rate: &bucket.Rate{Burst: 100_000}, Cost: ingest.Cost{in, five}},
			{Name: "calls", Rate: &bucket.Rate{}},
			{Name: "spend", Budget: &bucket.Budget{Quota: bucket.Quota{Count: 1_000_000}}},
		}},
	}
}

// TestTolls checks what calls reserve and what they are settled to, in units and in money.
func TestTolls(t *testing.T) {
	api := modelAPI()
	w := bareCaller()
	by := &lane.Terms{API: api}
	for _, c := range []struct {
		what, body string
		response   httpcall.Response
		reserved   string
		took       string
	}{
		{"less than reserved", `{"in":400,"max":100}`, answered(200, 300, 20), "[900 1 4000] 4000", "[400 1 2950] 2950"},
		{"more than reserved", `{"in":400,"max":100}`, answered(200, 401, 200), "[900 1 4000] 4000", "[1401 1 5003] 5003"},
		{"by default", `{}`, answered(200, 1, 1), "[3500 1 9500] 9500", "[6 1 2013] 2013"},
		{"silent: the most so far", `{"in":400,"max":100}`, httpcall.Response{Sent: true, Status: 200}, "[1401 1 5003] 5003", "as reserved 5003"},
		{"silent: the estimate", `{"in":4000,"max":1000}`, httpcall.Response{Sent: true, Status: 200}, "[9000 1 22000] 22000", "as reserved 22000"},
		{"not billed", `{"in":400,"max":100}`, httpcall.Response{Sent: true, Status: 429}, "[1401 1 5003] 5003", "[1401 1 0] 4000"},
		{"broke off, less seen", `{"in":400,"max":100}`, cut(answered(200, 10, 20)), "[1401 1 5003] 5003", "as reserved 5003"},
		{"broke off, more seen", `{"in":400,"max":100}`, cut(answered(200, 10, 2000)), "[1401 1 5003] 5003", "[10401 1 23003] 23003"},
	} {
		j := &lane.Job{Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}}, Message: &ingest.Job{Body: []byte(c.body)}, Terms: by}
		reserve, _, err := w.settlements.toll(by, j.Message)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(reserve.Costs, reserve.Price); got != c.reserved {
			t.Errorf("%s: reserves %s, want %s", c.what, got, c.reserved)
		}
		j.Costs, j.Bill.Reserved = reserve.Costs, reserve.Price
		s := w.settleUnits(j, c.response)
		got := fmt.Sprint(s.actual, s.price)
		if s.actual == nil {
			got = fmt.Sprint("as reserved ", s.price)
		}
		if got != c.took {
			t.Errorf("%s: took %s, want %s", c.what, got, c.took)
		}
	}
}

func answered(status int, in, out int64) httpcall.Response {
	return httpcall.Response{Sent: true, Status: status, Units: map[string]int64{"/usage/in": in, "/usage/out": out}}
}

func cut(r httpcall.Response) httpcall.Response {
	r.Cut = true
	return r
}

// TestLearn checks that a term that learns reserves the percentile of what answers reported, never more than the job
// asks for, and nothing of it before enough answers have come.
func TestLearn(t *testing.T) {
	w := bareCaller()
	by := &lane.Terms{API: modelAPI()}
	reserved := func(body string) int64 {
		toll, _, err := w.settlements.toll(by, &ingest.Job{Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return toll.Costs[0]
	}
	answer := func(n int64) {
		j := &lane.Job{Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}, Call: limits.Call{Costs: []int64{1, 1, 1}}}, Message: &ingest.Job{Body: []byte(`{}`)}, Terms: by}
		w.settleUnits(j, answered(200, 1000, n))
	}
	for n := range int64(leastTold - 1) {
		answer(n + 1)
	}
	if got := reserved(`{"max":500}`); got != 1000+5*500 {
		t.Errorf("a call reserves %d before enough answers have come", got)
	}
	for n := int64(leastTold); n <= 100; n++ {
		answer(n)
	}
	if got := reserved(`{"max":500}`); got != 1000+5*90 {
		t.Errorf("a call reserves %d, and nine of ten calls took at most 90", got-1000)
	}
	if got := reserved(`{"max":7}`); got != 1000+5*7 {
		t.Errorf("a call that asks for 7 reserves %d", got-1000)
	}
	for range learnedFrom {
		answer(3)
	}
	if got := reserved(`{"max":500}`); got != 1000+5*3 {
		t.Errorf("a call reserves %d after as many answers of 3 as are kept", got-1000)
	}
}

// tolled returns a job with what its call reserves.
func tolled(t *testing.T, w *caller, by *lane.Terms, body string) *lane.Job {
	t.Helper()
	j := &lane.Job{
		Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}}, Message: &ingest.Job{Body: []byte(body)}, Terms: by,
	}
	reserve, price, err := w.settlements.toll(by, j.Message)
	if err != nil {
		t.Fatal(err)
	}
	j.Costs, j.Bill.Reserved, j.Bill.Estimates = reserve.Costs, price, reserve.Estimates
	return j
}

// TestNothingReservesNothing checks that a call whose units are settled by its answer reserves at least one unit,
// whatever the job says: a limit that is used up must not let it pass.
func TestNothingReservesNothing(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	if j := tolled(t, w, by, `{"in":0,"max":0}`); fmt.Sprint(j.Costs) != "[1 1 2000]" {
		t.Errorf("a job that says 0 reserves %v", j.Costs)
	}
	api := modelAPI()
	api.Prices = ingest.Cost{{Settle: ingest.Source{Pointer: "/cents"}}}
	if j := tolled(t, w, &lane.Terms{API: api}, `{}`); j.Costs[2] != 1 {
		t.Errorf("a call of a price that only its answer tells reserves %v", j.Costs)
	}
}

// TestUnbilledCallsTeachNothing checks that answers of calls that are not billed change no later reservation, and that
// such a call is charged what it had reserved, or more if its answer says so.
func TestUnbilledCallsTeachNothing(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	for range 2 * leastTold {
		w.settleUnits(tolled(t, w, by, `{"in":100,"max":4000}`), answered(200, 100, 60))
	}
	for range learnedFrom {
		w.settleUnits(tolled(t, w, by, `{"in":100,"max":4000}`), answered(429, 0, 0))
	}
	j := tolled(t, w, by, `{"in":100,"max":4000}`)
	if got := fmt.Sprint(j.Costs); got != "[400 1 2850]" {
		t.Errorf("a call reserves %s after many answers 429", got)
	}
	if s := w.settleUnits(j, httpcall.Response{Sent: true, Status: 429}); fmt.Sprint(s.actual) != "[400 1 0]" {
		t.Errorf("a silent 429 is charged %v, and it had reserved %v", s.actual, j.Costs)
	}
	part := httpcall.Response{Sent: true, Status: 429, Units: map[string]int64{"/usage/in": 5000}}
	if s := w.settleUnits(j, part); fmt.Sprint(s.actual) != "[5000 1 0]" {
		t.Errorf("a 429 that reports 5000 of one term is charged %v", s.actual)
	}
	if j.Bill.Reserved != 2000+250+40_000 {
		t.Errorf("the intent of a call that learned a lower price holds %d", j.Bill.Reserved)
	}
}

// TestTermsLearnByTheirPlace checks that what answers told stays with the place in the answer when a term before it is
// added.
func TestTermsLearnByTheirPlace(t *testing.T) {
	w, by := bareCaller(), &lane.Terms{API: modelAPI()}
	for range leastTold {
		w.settleUnits(tolled(t, w, by, `{"in":100,"max":4000}`), answered(200, 20, 3000))
	}
	later := modelAPI()
	cost := later.Rules.Shared[0].Cost
	later.Rules.Shared[0].Cost = ingest.Cost{cost[1], cost[0]}
	later.Rules.Shared[0].Cost[1].Learn = 90
	if j := tolled(t, w, &lane.Terms{API: later}, `{"in":100,"max":4000}`); j.Costs[0] != 20+5*3000 {
		t.Errorf("a call reserves %d by terms in another order", j.Costs[0])
	}
}

// bareCaller returns a caller that settles calls and makes none.
func bareCaller() *caller {
	d := dispatcherOf(Options{})
	d.env.Metrics = lane.NewMetrics(nil)
	return bareWorker(d, "llm").caller
}

// TestPlacesOfNumber checks that, of several places, the first that the answer has counts, whatever their order in the
// answer. A number that a stream reports at its end replaces one from its beginning.
func TestPlacesOfNumber(t *testing.T) {
	at := ingest.Source{Pointer: "/usage/in", Or: [3]ingest.Place{{Pointer: "/message/usage/in"}, {Header: "X-In"}}}
	header := map[string][]string{"X-In": {"3"}}
	for _, c := range []struct {
		units map[string]int64
		want  string
	}{
		{map[string]int64{"/message/usage/in": 5, "/usage/in": 7}, "7 true"},
		{map[string]int64{"/message/usage/in": 5}, "5 true"},
		{map[string]int64{"": 9}, "3 true"},
	} {
		r := httpcall.Response{Status: 200, Header: header, Units: c.units}
		n, ok := r.Number(at)
		if got := fmt.Sprint(n, ok); got != c.want {
			t.Errorf("in %v there is %s, want %s", c.units, got, c.want)
		}
	}
	silent := httpcall.Response{Status: 200}
	if n, ok := silent.Number(at); ok {
		t.Errorf("an answer without any of the places has %d", n)
	}
}

// TestUsage checks which numbers of an answer are counted: of one that broke off, those that came.
func TestUsage(t *testing.T) {
	api := modelAPI()
	api.Usage = []httpcall.UsageCounter{
		{Name: "input", From: ingest.Source{Pointer: "/usage/in"}},
		{Name: "output", From: ingest.Source{Pointer: "/usage/out"}},
		{Name: "cached", From: ingest.Source{Header: "X-Cached"}},
	}
	r := answered(200, 7, 0)
	r.Header = map[string][]string{"X-Cached": {"3"}}
	if got := fmt.Sprint(api.UsageOf(r), api.UsageOf(cut(answered(200, 5, 2))), api.UsageOf(httpcall.Response{Status: 200})); got !=
		"map[cached:3 input:7 output:0] map[input:5 output:2] map[]" {
		t.Errorf("counted are %s", got)
	}
}

// TestBeyond checks what the end of an operation is charged beyond its call: what the final answer reports more, and
// nothing because the configuration has another price by then.
func TestBeyond(t *testing.T) {
	fixed := modelAPI()
	fixed.Price, fixed.Prices = 700_000, nil
	fixed.Rules.Shared[0].Cost = ingest.Units(9)
	for _, c := range []struct {
		what     string
		api      *httpcall.API
		op       queue.Operation
		response httpcall.Response
		want     string
	}{
		{"more", modelAPI(), queue.Operation{Price: 4000, Costs: []int64{900, 1, 4000}}, answered(200, 401, 200), "1003 [501 0 1003]"},
		{"less", modelAPI(), queue.Operation{Price: 4000, Costs: []int64{900, 1, 4000}}, answered(200, 1, 1), "0 [0 0 0]"},
		{"silent", modelAPI(), queue.Operation{Price: 4000, Costs: []int64{900, 1, 4000}}, httpcall.Response{Sent: true, Status: 200}, "0 [0 0 0]"},
		{"other limits", modelAPI(), queue.Operation{Price: 4000, Costs: []int64{900}}, answered(200, 401, 200), "1003 []"},
		{"a fixed price that has changed", fixed, queue.Operation{Price: 500_000, Costs: []int64{1, 1, 500_000}}, answered(200, 401, 200), "0 [0 0 0]"},
	} {
		w := bareCaller()
		w.grants = &grantEnds{clock: schedule.OtherClock, tell: make(chan struct{}, 1)}
		w.Now = func() bucket.Micros { return 1 }
		j := &lane.Job{
			Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}}, Message: &ingest.Job{Body: []byte(`{"in":400,"max":100}`)},
			Terms: &lane.Terms{API: c.api}, Operation: &c.op,
		}
		b := w.beyond(j, c.response)
		if want := map[string]string{"more": "[900 1 4000]", "silent": "[]"}[c.what]; want != "" && fmt.Sprint(b.Estimates) != want {
			t.Errorf("%s: the job is estimated at %v, want %s", c.what, b.Estimates, want)
		}
		if got := fmt.Sprint(b.Price, " ", b.Units); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if more := c.what == "more"; (len(w.grants.ended) == 1) != more {
			t.Errorf("%s: the store is told %+v", c.what, w.grants.ended)
		}
	}
}
