package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// right is the evidence of a run without a broken promise. Ten jobs were called at their rate and one was refused. If
// the api is not idempotent, one of the ten was parked although it was called, and another job was parked and never
// called.
func right(idempotent bool) *Evidence {
	e := &Evidence{
		Options: &plan.Options{Idempotent: idempotent}, Ends: &Ends{Results: map[string]int{}, Events: map[string]int{}},
		Announced: map[Place]struct{}{}, Timeline: plan.Timeline{{Terms: plan.Terms{Rate: 5, Burst: 1}}}, Began: time.Unix(1000, 0),
		Kills: []Kill{{What: "worker", At: time.Unix(1000, 0).Add(500 * time.Millisecond)}}, Faults: map[plan.Kind]int{},
	}
	if idempotent {
		e.Timeline[0].Terms.Header = plan.UsualKeyHeader
	}
	for i := range 10 {
		id := fmt.Sprintf("k-%d", i)
		e.Receipts = append(e.Receipts, Receipt{ID: id, Key: "k", Stream: "S", Seq: uint64(2 * i)})
		e.Arrivals = append(e.Arrivals, call(i, id, time.Duration(i)*250*time.Millisecond))
		e.Ends.Results[id] = 1
	}
	e.Receipts = append(e.Receipts, Receipt{ID: "full", Key: "k", Code: 429})
	e.Ends.Letters = []Letter{{Job: "full", Reason: "overflow"}}
	e.Ends.Events["full"] = 1
	if idempotent {
		return e
	}
	e.Receipts = append(e.Receipts, Receipt{ID: "k-uncalled", Key: "k", Stream: "S", Seq: 99})
	delete(e.Ends.Results, "k-3")
	for id, seq := range map[string]uint64{"k-3": 6, "k-uncalled": 99} {
		e.Ends.Letters = append(e.Ends.Letters, Letter{Job: id, Reason: "unknown", At: Place{"S", seq}})
		e.Announced[Place{"S", seq}] = struct{}{}
	}
	return e
}

// lateTry changes the evidence: the job that was refused at second 2000 was called, and accepted at the second taken.
// Its producer had sent it twice.
func lateTry(taken int64) func(e *Evidence) {
	return func(e *Evidence) {
		e.Receipts[10].Tries = 2
		e.Ends.Letters[0].Time = time.Unix(2000, 0)
		e.Ends.Results["full"] = 1
		e.Ends.Taken = map[string]time.Time{"full": time.Unix(taken, 0)}
		e.Arrivals = append(e.Arrivals, call(10, "full", 3*time.Second))
	}
}

// lostInCut changes the evidence: job k-9 was called after jobs that were accepted later, long after a cut. calls is
// how many calls weir reports for k-9.
func lostInCut(e *Evidence, calls int) {
	e.Receipts[9].Seq = 1
	e.Ends.Calls = map[string]int{"k-9": calls}
	e.Ends.Taken = map[string]time.Time{"k-9": e.Began.Add(-time.Hour)}
	e.Spoilt = []plan.Span{{From: e.Began.Add(-time.Minute), To: e.Began.Add(-50 * time.Second)}}
}

// overKill changes the evidence: two jobs were called in the wrong order, and weir was killed this much later than the
// first of the two calls.
func overKill(e *Evidence, later time.Duration) {
	e.Receipts[2].Seq, e.Receipts[5].Seq = 10, 4
	e.HeldUp = 150 * time.Millisecond
	e.Kills[0].At = e.Began.Add(time.Duration(e.Arrivals[2].At) + later)
}

func call(n int, id string, at time.Duration) fakeapi.Arrival {
	return fakeapi.Arrival{
		Number: int64(n + 1), At: int64(at), End: int64(at) + 1, Key: "k", Body: fmt.Appendf(nil, `{"id":%q}`, id), Ending: fakeapi.Answered,
		Status: 200, Billed: true, Fields: []fakeapi.Field{{Name: "Idempotency-Key", Value: id}},
	}
}

// TestJudge checks that the verdict finds each broken promise, and none if all are kept.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name       string
		idempotent bool
		spoil      func(e *Evidence)
		breaks     string // "" if no promise is broken
	}{
		{"all well", false, func(*Evidence) {}, ""},
		{"all well, idempotent", true, func(*Evidence) {}, ""},
		{"no end", false, func(e *Evidence) { delete(e.Ends.Results, "k-1") }, "lost"},
		{"still queued", false, func(e *Evidence) { delete(e.Ends.Results, "k-1"); e.Waiting = 1 }, "lost"},
		{"result and letter", false, func(e *Evidence) { e.Ends.Results["k-3"] = 1 }, "ended twice"},
		{"called though refused", false, func(e *Evidence) { e.Arrivals = append(e.Arrivals, call(10, "full", 3*time.Second)) }, "called"},
		{"refused, and an earlier try taken later", false, lateTry(2001), ""},
		{"refused though it had been taken", false, lateTry(1999), "called"},
		{"two results", true, func(e *Evidence) { e.Ends.Results["k-3"] = 2 }, "ended twice"},
		{"called again", false, func(e *Evidence) { e.Arrivals = append(e.Arrivals, call(10, "k-1", 3*time.Second)) }, "called twice"},
		{"called again after 429", false, func(e *Evidence) {
			e.Arrivals[1].Status, e.Arrivals[1].Billed = 429, false
			e.Arrivals = append(e.Arrivals, call(10, "k-1", 3*time.Second))
		}, ""},
		{"repeated with its key", true, func(e *Evidence) {
			again := call(10, "k-1", 3*time.Second)
			again.Billed = false
			e.Arrivals = append(e.Arrivals, again)
		}, ""},
		{"repeated with another key", true, func(e *Evidence) {
			again := call(10, "k-1", 3*time.Second)
			again.Billed, again.Fields[0].Value = false, "other"
			e.Arrivals = append(e.Arrivals, again)
		}, "called twice"},
		{"out of order", false, func(e *Evidence) { overKill(e, -300*time.Millisecond) }, "out of order"},
		{"out of order over a kill that came before it could be sent", false, func(e *Evidence) { overKill(e, 400*time.Millisecond) }, ""},
		{"out of order over a kill, and long before it", false, func(e *Evidence) { overKill(e, 700*time.Millisecond) }, "out of order"},
		{"out of order, its first call lost in a cut", true, func(e *Evidence) { lostInCut(e, 2) }, ""},
		{"out of order, and no call lost", true, func(e *Evidence) { lostInCut(e, 1) }, "out of order"},
		{"overtaken by a little", false, func(e *Evidence) { e.Arrivals[1].At, e.Arrivals[2].At = e.Arrivals[2].At, e.Arrivals[2].At-1 }, ""},
		{"too fast", false, func(e *Evidence) {
			for i := range e.Arrivals {
				e.Arrivals[i].At /= 2
			}
		}, "over-rate"},
		{"unknown out of nowhere", false, func(e *Evidence) { delete(e.Announced, Place{"S", 6}) }, "unknown parked"},
		{"unknown on an idempotent api", true, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Ends.Letters = append(e.Ends.Letters, Letter{Job: "k-1", Reason: "unknown", At: Place{"S", 2}})
		}, "unknown parked"},
		{"accepted after a backup that was put back", false, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Receipts[1].At = e.Began.Add(time.Second)
			e.SetBacks, e.Heard.Restored = []SetBack{{e.Began, e.Began.Add(2 * time.Second)}}, 1
		}, ""},
		{"lost, and not since the backup", false, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Receipts[1].At = e.Began.Add(-time.Second)
			e.SetBacks, e.Heard.Restored = []SetBack{{e.Began, e.Began.Add(2 * time.Second)}}, 1
		}, "lost"},
		{"a backup that was not reported", false, func(e *Evidence) { e.SetBacks = []SetBack{{e.Began, e.Began}} }, "restored"},
		{"a backup that was not noticed", false, func(e *Evidence) { e.Unnoticed = 1 }, "restored"},
		{"lost by damage, and told", false, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Damages, e.Heard.Unnamed = []Damage{{Stream: "S"}}, map[string]bool{"S": true}
		}, ""},
		{"lost by damage without a word", false, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Damages = []Damage{{Stream: "S"}}
		}, "damaged"},
		{"lost beside damage of another queue", false, func(e *Evidence) {
			delete(e.Ends.Results, "k-1")
			e.Damages, e.Heard.Unnamed = []Damage{{Stream: "T"}}, map[string]bool{"S": true}
		}, "lost"},
		{"another letter", false, func(e *Evidence) { e.Ends.Letters[1].Reason = "exhausted" }, "other letters"},
		{"refused without a letter", false, func(e *Evidence) { e.Ends.Letters = e.Ends.Letters[1:] }, "refused"},
		{"refused without an event", false, func(e *Evidence) { clear(e.Ends.Events) }, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := right(c.idempotent)
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
			if r.Recovery.Of != 1 || r.Recovery.P50 <= 0 {
				t.Errorf("recovery %+v", r.Recovery)
			}
		})
	}
}

// TestDoubt checks that an excess which the error of the stamps may explain is neither a breach nor a proof.
func TestDoubt(t *testing.T) {
	e := right(false)
	e.HeldUp = 600 * time.Millisecond
	for i := range e.Arrivals {
		e.Arrivals[i].At = e.Arrivals[i].At * 7 / 10
	}
	r := Judge(e)
	if r.OverRate != 0 || r.Doubtful == 0 || !r.Kept() {
		t.Errorf("over %d, doubtful %d, kept %v", r.OverRate, r.Doubtful, r.Kept())
	}
}
