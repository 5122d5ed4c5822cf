package dispatcher

import (
	"fmt"
	"testing"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// formed returns the jobs of a pack with these bodies, which the first leads.
func formed(t *testing.T, w *caller, by *lane.Terms, bodies ...string) (jobs []*lane.Job) {
	t.Helper()
	p := &lane.Pack{ID: "p", Sum: by.NewSum()}
	for _, body := range bodies {
		j := tolled(t, w, by, body)
		if err := w.take(p, j); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	w.form(jobs[0], p, nil)
	return jobs
}

// TestPackReserves checks that a pack reserves the sum over its jobs of what is read from them, raised as the estimates of
// single calls are, and that each job has its part of the price.
func TestPackReserves(t *testing.T) {
	api := modelAPI()
	api.Pack = &httpcall.Pack{Jobs: 5}
	w, by := bareCaller(), &lane.Terms{API: api}
	const body = `{"in":100,"max":100}`
	reserves := func(what, want string) []*lane.Job {
		t.Helper()
		jobs := formed(t, w, by, body, body)
		if got := fmt.Sprint(jobs[0].Costs, jobs[0].Bill.Estimates, jobs[0].Bill.Reserved, jobs[1].Costs, jobs[1].Bill.Estimates, jobs[1].Bill.Reserved); got != want {
			t.Errorf("%s: a pack of two reserves %s, want %s", what, got, want)
		}
		return jobs
	}
	jobs := reserves("at first", "[1200 1 4500] [1200 1 2250] 2250 [] [] 2250")
	took := w.settleUnits(jobs[0], answered(200, 1000, 300))
	if got := fmt.Sprint(took.actual, took.price); got != "[2500 1 7500] 7500" {
		t.Errorf("a pack of two took %s", got)
	}
	jobs[0].Bill.Taken = []int64{2500, 1, 3750}
	if got := fmt.Sprint(jobs[0].Bill.Low()); got != "[1200 1 2250]" {
		t.Errorf("the first record of a pack that took more has the estimates %s", got)
	}
	reserves("after an answer of five and 1.5 times its estimates", "[2500 1 7500] [1200 1 2250] 3750 [] [] 3750")

	w = bareCaller()
	w.settlements.recall(&ledger.Record{
		Limits: []string{"tokens", "calls", "spend"}, Estimated: []int64{1200, 1, 2250}, Costs: []int64{2500, 1, 3750}, Billed: deadletter.BilledYes,
		Pack: jobs[0].In,
	}, []string{"spend"})
	reserves("by the record of such a pack", "[2500 1 7500] [1200 1 2250] 3750 [] [] 3750")
}

// TestRepeatedPackHasItsOrder checks that a pack that is called again has its jobs in the order of the earlier call, and
// its idempotency key: otherwise the api would get another body under the same key.
func TestRepeatedPackHasItsOrder(t *testing.T) {
	api := modelAPI()
	api.Pack = &httpcall.Pack{Jobs: 5}
	w, by := bareCaller(), &lane.Terms{API: api}
	p := &lane.Pack{ID: "new", Sum: by.NewSum()}
	for i, body := range []string{`{"in":3,"max":3}`, `{"in":1,"max":1}`, `{"in":2,"max":2}`} {
		j := tolled(t, w, by, body)
		j.Bond = &schedule.Bond{ID: "old", Place: (i + 2) % 3, Of: 3}
		if err := w.take(p, j); err != nil {
			t.Fatal(err)
		}
	}
	w.form(p.Jobs[0], p, &queue.Pack{ID: "old", Of: 3})
	const want = `[{"in":1,"max":1},{"in":2,"max":2},{"in":3,"max":3}]`
	if got := string(p.Message.Body); got != want || p.Message.ID != "old" {
		t.Errorf("%s is called with %s, want %s", p.Message.ID, got, want)
	}
	for i, j := range p.Jobs {
		if j.In.Place != i || j.In.Place != j.Bond.Place {
			t.Errorf("the job at place %d has place %d, and had %d", i, j.In.Place, j.Bond.Place)
		}
	}
}
