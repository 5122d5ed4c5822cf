package dispatcher

import (
	"fmt"
	"testing"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
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
