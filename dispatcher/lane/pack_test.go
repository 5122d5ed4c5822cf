package lane

import (
	"slices"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// TestBondOutlastsCallsForNoPack checks that a job whose pack the api may have processed stays tied to that pack if a
// later call is for no pack because there was no connection, and that a job is free if the api processed no call of it.
func TestBondOutlastsCallsForNoPack(t *testing.T) {
	api := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}, Pack: &httpcall.Pack{Jobs: 5}}
	j, in := &Job{Job: &schedule.Job{}}, &queue.Pack{ID: "p", Place: 1, Of: 3}
	j.Doubt.Add(deadletter.BilledUnknown, api.PackIdentity("p", time.Unix(1_800_000_000, 0)))
	j.BindLocked(in)
	j.Doubt.Add(deadletter.NotBilled, "")
	j.BindLocked(nil)
	if got := j.Bound(); got == nil || *got != *in {
		t.Errorf("after a call without a connection the job is tied to %+v, want %+v", got, in)
	}
	j.Doubt = Doubt{}
	j.Doubt.Add(deadletter.NotBilled, "")
	if j.BindLocked(in); j.Bond != nil {
		t.Errorf("a job that was not processed is tied to %+v", j.Bond)
	}
}

// TestPackHasTheAttemptsOfItsNewestJob checks that a retry does not use up the attempts of a pack that must be called
// again as it was.
func TestPackHasTheAttemptsOfItsNewestJob(t *testing.T) {
	p := &Pack{Jobs: []*Job{{Attempts: 2}, {Attempts: 0}, {Attempts: 1}}}
	p.EvenLocked()
	for i, j := range p.Jobs {
		if j.Attempts != 0 {
			t.Errorf("job %d has made %d attempts", i, j.Attempts)
		}
	}
}

// TestPackFits checks which jobs fit in one call by the present terms.
func TestPackFits(t *testing.T) {
	for _, c := range []struct {
		what    string
		of      httpcall.Pack
		intents int64
		fits    bool
	}{
		{"all", httpcall.Pack{Jobs: 3, Bytes: 9}, 30, true},
		{"fewer jobs", httpcall.Pack{Jobs: 2, Bytes: 9}, 30, false},
		{"fewer bytes", httpcall.Pack{Jobs: 3, Bytes: 8}, 30, false},
		{"other matches", httpcall.Pack{Jobs: 3, Bytes: 9, Match: "/id"}, 30, false},
		{"shorter messages of intents", httpcall.Pack{Jobs: 3, Bytes: 9}, 29, false},
	} {
		p := &Pack{Jobs: make([]*Job, 3), Matches: []string{"a", "b", "a"}, Size: 5, Sum: (&Terms{API: &httpcall.API{Rule: &ingest.Rule{}}, Intent: 10}).NewSum()}
		if err := p.Sum.Add(&ingest.Job{}); err != nil {
			t.Fatal(err)
		}
		if got := p.Fits(&c.of, c.intents); got != c.fits {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// TestSharesOfBilledJobs checks that what each call costs is divided among the jobs that were billed, that what a job
// adds is its own, and that nothing gets lost.
func TestSharesOfBilledJobs(t *testing.T) {
	for _, c := range []struct {
		free []bool
		want []int64
	}{
		{[]bool{false, false, false}, []int64{34, 33, 33}},
		{[]bool{true, false, false}, []int64{0, 50, 50}},
		{[]bool{true, true, true}, []int64{34, 33, 33}},
	} {
		by := &Terms{API: &httpcall.API{Price: 100}}
		p := &Pack{Sum: by.NewSum()}
		for range c.free {
			j := &Job{Terms: by, Message: &ingest.Job{}}
			if err := p.Sum.Add(j.Message); err != nil {
				t.Fatal(err)
			}
			p.Jobs = append(p.Jobs, j)
		}
		if got := p.Shares(100, func(i int) bool { return c.free[i] }); !slices.Equal(got, c.want) {
			t.Errorf("free %v: %v, want %v", c.free, got, c.want)
		}
	}
}
