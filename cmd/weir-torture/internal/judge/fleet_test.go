package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// rightFleet is the evidence of two replicas that make a hundred calls by turns, ten per second. There is one fault
// after five seconds, and no call for two seconds after it.
func rightFleet() *Evidence {
	e := &Evidence{
		Options: &plan.Options{Replicas: 2}, Ends: &Ends{Results: map[string]int{}, Events: map[string]int{}}, Began: time.Unix(1000, 0),
		Timeline: plan.Timeline{{Terms: plan.Terms{Rate: 10, Burst: 1}}},
		Replicas: []string{"one", "two"}, Keys: []string{"k"}, InFlight: 2, Faults: map[plan.Kind]int{},
	}
	at := func(n int) time.Duration {
		d := time.Duration(n) * 100 * time.Millisecond
		if n > 50 {
			d += 2 * time.Second
		}
		return d
	}
	for n := range 100 {
		id := fmt.Sprintf("k-%d", n)
		a := call(n, id, at(n))
		a.End = a.At + int64(150*time.Millisecond) // two calls at a time
		a.Fields = append(a.Fields, fakeapi.Field{Name: plan.NameHeader, Value: e.Replicas[n%2]})
		e.Arrivals = append(e.Arrivals, a)
		e.Receipts = append(e.Receipts, Receipt{ID: id, Key: "k", Stream: "S", Seq: uint64(n + 1), At: e.Began.Add(at(n)), Waited: time.Millisecond})
		e.Ends.Results[id] = 1
	}
	e.Receipts[55].Waited = time.Second
	e.Calm = []plan.Span{{From: e.Began, To: e.Began.Add(time.Hour)}}
	strike := e.Began.Add(at(50) + 50*time.Millisecond)
	e.Strikes = []Strike{{Kind: plan.KillReplica, Target: "one", At: strike, Ended: strike.Add(time.Second), Over: strike.Add(3 * time.Second)}}
	e.Troubles = []Trouble{{strike.Add(time.Millisecond), "no answer"}, {strike.Add(time.Hour), "no answer"}}
	return e
}

// hurt changes the evidence: one copy of a stream was damaged by the fault, and is current again two seconds later.
func hurt(e *Evidence, stream string) {
	at := e.Strikes[0].At
	e.Damages = append(e.Damages, Damage{Stream: stream, At: at, Up: at.Add(2 * time.Second)})
}

// refused changes the evidence: at the time of the nth call another job was refused, of which nothing is stored.
func refused(e *Evidence, n int) {
	e.Receipts = append(e.Receipts, Receipt{ID: "full", Key: "k", Code: 429, At: e.Receipts[n].At})
}

// TestFleetJudge checks that the verdict finds each broken promise of a fleet, and measures the recovery from a fault.
func TestFleetJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(e *Evidence)
		breaks string
	}{
		{"all well", func(*Evidence) {}, ""},
		{"three at once", func(e *Evidence) { e.Arrivals[7].End += int64(150 * time.Millisecond) }, "at once"},
		{"more than the quota in its window", func(e *Evidence) { e.Quota = 70 }, "over-rate"},
		{"as many as the quota allows", func(e *Evidence) { e.Quota = 100 }, ""},
		{"a result cannot be read", func(e *Evidence) { e.Ends.Unread = []string{"read WEIR_RESULTS"} }, "unread"},
		{"never got over", func(e *Evidence) { e.Strikes[0].Over = time.Time{} }, "resumed"},
		{"a copy stayed away", func(e *Evidence) { e.Strikes[0].Kind, e.Strikes[0].Behind = plan.FlipNode, "S" }, "copies"},
		{"the copies came back", func(e *Evidence) { e.Strikes[0].Kind = plan.ScaleStream }, ""},
		{"what a damaged copy had is not mended", func(e *Evidence) {
			hurt(e, "WEIR_RESULTS")
			delete(e.Ends.Results, "k-20")
			e.Ends.Unread = []string{"read WEIR_RESULTS, of which 1 messages are left"}
			e.Strikes[0].Kind, e.Strikes[0].Unmended = plan.FlipNode, "WEIR_RESULTS"
		}, ""},
		{"a damaged queue counts a job that has ended", func(e *Evidence) { hurt(e, "WEIR_pay_1"); e.Waiting = 1 }, ""},
		{"a job waits beside a damaged queue", func(e *Evidence) { hurt(e, "WEIR_pay_1"); e.Waiting = 1; delete(e.Ends.Results, "k-80") }, "lost"},
		{"a queue counts a job that has ended, and is not damaged", func(e *Evidence) { hurt(e, "WEIR_RESULTS"); e.Waiting = 1 }, "lost"},
		{"an end after the damage is missing", func(e *Evidence) { hurt(e, "WEIR_RESULTS"); delete(e.Ends.Results, "k-80") }, "lost"},
		{"an end in another stream than the damaged one is missing", func(e *Evidence) { hurt(e, "WEIR_EVENTS"); delete(e.Ends.Results, "k-20") }, "lost"},
		{"another stream than the damaged one is unread", func(e *Evidence) {
			hurt(e, "WEIR_RESULTS")
			e.Ends.Unread = []string{"read WEIR_DEAD, of which 1 messages are left"}
		}, "unread"},
		{"a job that was never called has no end, and its results are damaged", func(e *Evidence) {
			hurt(e, "WEIR_RESULTS")
			delete(e.Ends.Results, "k-20")
			e.Arrivals = slices.Delete(e.Arrivals, 20, 21)
		}, "lost"},
		{"called again after damage of the ledger", func(e *Evidence) {
			hurt(e, "WEIR_CALLS")
			again := e.Arrivals[20]
			again.Number, again.At, again.End = 200, int64(20*time.Second), int64(20*time.Second+time.Millisecond)
			e.Arrivals = append(e.Arrivals, again)
		}, "called twice"},
		{"letters and events of a refusal were damaged", func(e *Evidence) { refused(e, 20); hurt(e, "WEIR_DEAD"); hurt(e, "WEIR_EVENTS") }, ""},
		{"the letter of a refusal after the damage is missing", func(e *Evidence) { refused(e, 80); hurt(e, "WEIR_DEAD"); hurt(e, "WEIR_EVENTS") }, "refused"},
		{"one does the work", func(e *Evidence) {
			for i := range 20 {
				e.Arrivals[2*i].Fields[1].Value = "two"
			}
		}, "work share"},
		{"the shares of replicas are unknown", func(e *Evidence) { e.Calm = nil }, "work share"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := rightFleet()
			c.spoil(e)
			r := Judge(e)
			var names []string
			for _, f := range r.Findings {
				if f.Outcome != bucket.Pass {
					names = append(names, f.Name)
				}
			}
			if got := strings.Join(names, ","); got != c.breaks {
				t.Errorf("broken: %q, want %q: %+v", got, c.breaks, r)
			}
		})
	}
	a := Judge(rightFleet()).Aftermath[0]
	if a.Of != 1 || a.Stall.Max != 2050*time.Millisecond || a.After.Max != 1050*time.Millisecond || a.Intake.Max != time.Second || a.Trouble != 1 {
		t.Errorf("aftermath %+v", a)
	}
	gone := rightFleet()
	gone.Arrivals, gone.Strikes[0].Over = gone.Arrivals[:51], time.Time{}
	a = Judge(gone).Aftermath[0]
	if a.Missing != 1 || a.Stall.Max != time.Second+ResumesWithin || a.After.Max != ResumesWithin {
		t.Errorf("no call came after the fault: aftermath %+v", a)
	}
}
