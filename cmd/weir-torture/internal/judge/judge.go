// Package judge compares what a paid api and the producers of a run recorded with the promises of weir (Judge), and
// reports the verdict (Report). See package torture for what is judged, and what is no breach.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
	"weir/deadletter"
)

// Evidence is everything that the verdict is made from.
type Evidence struct {
	Options   *plan.Options
	Receipts  []Receipt
	Ends      *Ends
	Arrivals  []fakeapi.Arrival  // the calls in the api's own ledger
	Polls     []fakeapi.Arrival  // the polls of operations in that ledger
	Began     time.Time          // when the ledger's clock began
	Announced map[Place]struct{} // the jobs for which an intent was seen
	Timeline  plan.Timeline
	Ways      map[plan.Way]int
	Memory    []MemoryLife
	Charges   Charges
	Bill      Bill // what `weir spend` says
	Spent     *int // the spending that weir reports, in hundredths of the currency; nil: it reports none
	Kills     []Kill
	Faults    map[plan.Kind]int
	Missed    int
	ByThem    int
	Spoilt    []plan.Span
	HeldUp    time.Duration
	Waiting   int // jobs still queued
	Took      time.Duration
	Notes     []string
	Troubles  []Trouble

	SetBacks  []SetBack
	Damages   Damages
	Heard     Heard
	Redrives  *Redrives // nil: nothing was redriven
	Unnoticed int       // restored backups after which weir did not refuse to start

	Posted       Posts // nil without callbacks
	PostsRefused int   // by the receiver

	KnowsMemory bool              // weir obeys a memory limit
	reached     map[string]int    // by job: how many of its calls arrived
	jobCalls    []fakeapi.Arrival // ByJob of the arrivals; nil before it is needed

	// The fields of a fleet.
	Strikes  []Strike
	Calm     []plan.Span // spans without faults
	InFlight int64       // the limit of concurrent calls over all keys
	Quota    int64       // the limit of calls in each plan.QuotaPer over all keys; 0: none
	Keys     []string
	Replicas []string
}

// Judge compares what the api saw with the promises to the producers.
func Judge(e *Evidence) *Report {
	r := &Report{
		Command: e.Options.Command(), Seed: e.Options.Seed, Server: e.Options.Server, Idempotent: e.Options.Idempotent, Took: e.Took,
		Waiting: e.Waiting, Missed: e.Missed, ByThem: e.ByThem, HeldUp: e.HeldUp, Notes: e.Notes, Faults: e.Faults,
		Points: map[string]int{}, Changed: e.Timeline.Changed(), Ways: e.Ways,
	}
	r.countKills(e)
	for _, what := range e.Ends.Unread {
		if e.Damages.explain(what) {
			r.UnreadHurt++
			continue
		}
		r.Unread++
		r.example("unread", what)
	}
	e.nameLost()
	r.Restores, r.Unnoticed, r.RestoresTold, r.Flips = len(e.SetBacks), e.Unnoticed, e.Heard.Restored, len(e.Damages)
	e.judgeEnds(r)
	e.judgeCalls(r)
	e.judgeFlights(r)
	e.judgePacks(r)
	e.judgeOperations(r)
	reuseJudge{e}.judge(r)
	e.judgeCallbacks(r)
	e.judgeOrder(r)
	rateJudge{e}.judge(r)
	e.judgeSpend(r)
	e.judgeSettled(r)
	e.judgeMemory(r)
	r.Recovery = e.recovery("")
	r.WorkerRecovery, r.ServerRecovery = e.recovery("worker"), e.recovery("server")
	fleetJudge{e}.judge(r)
	if e.Redrives != nil {
		e.Redrives.report(r)
	}
	r.Findings = r.findings()
	return r
}

// JobOf returns the job of a call: from the query if the body is large, else from the body.
func JobOf(a *fakeapi.Arrival) string {
	if id, ok := strings.CutPrefix(a.Query, plan.JobQuery); ok {
		return id
	}
	return fakeapi.ByField("id")(a)
}

// judgeEnds judges how accepted jobs ended, and what the producers of refused jobs were promised.
func (e *Evidence) judgeEnds(r *Report) {
	letters, overflows, told := map[string][]Letter{}, map[string]int{}, map[uint64]time.Time{}
	for _, l := range e.Ends.Letters {
		if l.At == (Place{}) {
			overflows[l.Job]++ // the letter of a refused job
			told[l.Seq] = l.Time
			continue
		}
		letters[l.Job] = append(letters[l.Job], l)
	}
	called, last := map[string]bool{}, map[string]*fakeapi.Arrival{}
	for i := range e.calls() {
		a := &e.calls()[i]
		id := JobOf(a)
		called[id] = true
		if last[id] == nil || last[id].At < a.At {
			last[id] = a
		}
	}
	known, damaged := map[string]bool{}, map[string]int{}
	for _, p := range e.Receipts {
		known[p.ID] = p.Code == 0
		if p.Code != 0 {
			r.Refused++
			if e.gone(&p) {
				continue // and its letter and its event are gone too
			}
			if overflows[p.ID] == 0 && !e.Damages.after(deadletter.Stream, p.At) {
				r.RefusedWithoutLetter++
			}
			if e.lateTry(&p, told[p.Letter]) {
				r.LateTries++
				known[p.ID] = true
			}
			if e.Ends.Events[p.ID] == 0 && !e.Damages.after(deadletter.EventsStream, p.At) {
				r.RefusedWithoutEvent++
			}
			continue
		}
		r.Accepted++
		if called[p.ID] {
			r.Called++
		}
		ends := e.Ends.Results[p.ID] + len(letters[p.ID])
		r.Results += min(1, e.Ends.Results[p.ID])
		if ends > 1 {
			r.EndedTwice++
			r.example("ended twice", p.ID)
		}
		switch {
		case ends > 0:
		case e.gone(&p):
			r.Gone++
		case e.Damages.of(p.Stream):
			r.Damaged++
			damaged[p.Stream]++
		case e.endHurt(&p, last[p.ID]):
			r.EndsHurt++
		default:
			r.Lost++
			r.example("lost", p.ID)
		}
		if strings.HasPrefix(lostDetail(letters[p.ID]), "lost: ") {
			r.Damaged++
		}
		for _, l := range letters[p.ID] {
			e.judgeLetter(r, l, called)
		}
	}
	if e.Damages.ofQueue() { // a stream goes on counting a message that it cannot give, and no job waits behind that
		r.Waiting = min(r.Waiting, r.Lost)
	}
	r.Lost = max(0, r.Lost-e.Waiting)
	if r.Untold = e.untold(damaged); r.Untold > 0 {
		r.example("lost without a word", fmt.Sprint(damaged))
	}
	for id := range called {
		if !known[id] {
			r.Unasked++
			r.example("called though not accepted", id)
		}
	}
}

// lostDetail returns the detail in the letter of a lost job, or "" if there is none.
func lostDetail(letters []Letter) string {
	for _, l := range letters {
		if l.Reason == string(deadletter.Unknown) {
			return l.Detail
		}
	}
	return ""
}

// lateTry reports whether a job was refused and later accepted, because its producer had sent it several times. An
// earlier try was still held up by a cut link when the bucket had room again. To weir the late try is a job sent again.
func (e *Evidence) lateTry(p *Receipt, refused time.Time) bool {
	return p.Code != 0 && p.Tries > 1 && !refused.IsZero() && e.Ends.Taken[p.ID].After(refused)
}

func (e *Evidence) judgeLetter(r *Report, l Letter, called map[string]bool) {
	if l.Reason != string(deadletter.Unknown) {
		r.OtherLetters++
		r.example("letter "+l.Reason, l.Job+": "+l.Detail)
		return
	}
	r.Unknown++
	if called[l.Job] {
		r.UnknownCalled++
	} else {
		r.UnknownNeverSeen++
		r.example("unknown, and never seen by the api", l.Job+": "+l.Detail)
	}
	if _, ok := e.Announced[l.At]; ok || e.explains(&l) {
		r.UnknownExplained++
	} else {
		r.example("unknown without an intent", l.Job+": "+l.Detail)
	}
}

// stampError returns how far a time stamp may be off. A call passes through two programs, and the machine may have let
// both of them wait.
func (e *Evidence) stampError() time.Duration { return 2 * e.HeldUp }

// stamped returns the time stamps of calls.
func stamped(of []fakeapi.Arrival) []bucket.Arrival {
	stamps := make([]bucket.Arrival, len(of))
	for i := range of {
		stamps[i] = bucket.Arrival{At: of[i].At, End: of[i].End}
	}
	return stamps
}

// tooFull counts the windows that begin with a call and have more calls than the rate allows.
func tooFull(of []fakeapi.Arrival, rate bucket.Rate) (windows int) {
	n := int(rate.Count)
	for i := 0; i+n < len(of); i++ {
		if of[i+n].At-of[i].At < int64(rate.Per) {
			windows++
		}
	}
	return windows
}

// recovery returns how long after each kill the next call arrived. what names the killed process; "" means all.
func (e *Evidence) recovery(what string) Recovery {
	arrivals := fakeapi.ByTime(e.Arrivals)
	var waits []time.Duration
	for _, k := range e.Kills {
		if what != "" && k.What != what || k.What == Idle {
			continue
		}
		at := int64(k.At.Sub(e.Began))
		i, _ := slices.BinarySearchFunc(arrivals, at, func(a fakeapi.Arrival, at int64) int {
			if a.At <= at {
				return -1
			}
			return 1
		})
		if i < len(arrivals) {
			waits = append(waits, time.Duration(arrivals[i].At-at))
		}
	}
	return spread(waits)
}

// spread sorts durations and returns their distribution.
func spread(waits []time.Duration) Recovery {
	slices.Sort(waits)
	n := len(waits)
	if n == 0 {
		return Recovery{}
	}
	return Recovery{Of: n, P50: waits[n/2], P99: waits[min(n-1, n*99/100)], Max: waits[n-1]}
}
