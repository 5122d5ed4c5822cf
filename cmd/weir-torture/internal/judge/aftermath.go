package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// Aftermath says how all faults of one kind affected a fleet.
type Aftermath struct {
	Kind    plan.Kind `json:"kind"`
	Of      int       `json:"of"`
	Behind  int       `json:"not_whole"`   // faults of the nodes' stores after which a stream did not get all its copies
	Missing int       `json:"not_resumed"` // faults after which not every key was called again in time
	Stall   Recovery  `json:"stall"`       // the longest time that a key had no call, counted from the fault
	After   Recovery  `json:"after"`       // the part of Stall after the end of the fault
	Intake  Recovery  `json:"intake"`      // the longest wait of a producer for a receipt
	Trouble int       `json:"trouble"`     // failed tries of producers until the recovery
}

// fleetJudge judges what the faults of a fleet did to it.
type fleetJudge struct{ *Evidence }

// aftermath examines the time from each fault to the fleet's recovery.
func (e fleetJudge) aftermath() []Aftermath {
	byKey := map[string][]fakeapi.Arrival{}
	for _, key := range e.Keys {
		byKey[key] = fakeapi.OfKey(fakeapi.ByTime(e.Arrivals), key)
	}
	var kinds []plan.Kind
	gathered := map[plan.Kind]*Aftermath{}
	stalls, afters, intakes := map[plan.Kind][]time.Duration{}, map[plan.Kind][]time.Duration{}, map[plan.Kind][]time.Duration{}
	for _, s := range e.Strikes {
		a := gathered[s.Kind]
		if a == nil {
			a = &Aftermath{Kind: s.Kind}
			gathered[s.Kind], kinds = a, append(kinds, s.Kind)
		}
		a.Of++
		if s.Behind != "" {
			a.Behind++
		}
		if s.Over.IsZero() {
			a.Missing++
			s.Over = s.Ended.Add(ResumesWithin)
		}
		stall, after := e.stall(byKey, s)
		stalls[s.Kind], afters[s.Kind] = append(stalls[s.Kind], stall), append(afters[s.Kind], after)
		intakes[s.Kind] = append(intakes[s.Kind], e.intakeStall(s))
		for _, t := range e.Troubles {
			if t.At.After(s.At) && t.At.Before(s.Over) {
				a.Trouble++
			}
		}
	}
	slices.Sort(kinds)
	var all []Aftermath
	for _, k := range kinds {
		a := gathered[k]
		a.Stall, a.After, a.Intake = spread(stalls[k]), spread(afters[k]), spread(intakes[k])
		all = append(all, *a)
	}
	return all
}

// stall returns the longest time that a key had no call between a fault and the recovery, and the longest such time
// after the end of the fault.
func (e fleetJudge) stall(byKey map[string][]fakeapi.Arrival, s Strike) (stall, after time.Duration) {
	for _, of := range byKey {
		last := s.At
		for i := range of {
			at := e.Began.Add(time.Duration(of[i].At))
			if at.Before(s.At) {
				continue
			}
			if last.After(s.Over) {
				break
			}
			stall, after = max(stall, at.Sub(last)), max(after, at.Sub(later(last, s.Ended)))
			last = at
		}
		if !last.After(s.Over) { // no further call ended this time
			stall, after = max(stall, s.Over.Sub(last)), max(after, s.Over.Sub(later(last, s.Ended)))
		}
	}
	return stall, max(0, after)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// intakeStall returns the longest wait of a producer for an answer during a fault and the recovery.
func (e fleetJudge) intakeStall(s Strike) (longest time.Duration) {
	for _, r := range e.Receipts {
		if r.At.After(s.At) && r.At.Add(-r.Waited).Before(s.Over) {
			longest = max(longest, r.Waited)
		}
	}
	return longest
}

// Share is a replica's part of the work while all replicas were up and there was no fault.
type Share struct {
	Replica string  `json:"replica"`
	Calls   int     `json:"calls"`
	OfEven  float64 `json:"of_even"` // 1: an even part
}

// shareWithin is how far OfEven may be from 1.
const (
	shareWithin = 0.20
	enoughCalls = 30 // of each replica on average, so that a calm spell is judged
)

// shares counts the calls of steady keys by replica in each calm spell. It returns the shares of the most uneven spell.
func (e fleetJudge) shares() (worst []Share, outcome bucket.Outcome) {
	outcome = bucket.Inconclusive
	furthest := -1.0
	for _, spell := range e.Calm {
		calls, total := map[string]int{}, 0
		for i := range e.Arrivals {
			a := &e.Arrivals[i]
			at := e.Began.Add(time.Duration(a.At))
			if at.After(spell.From) && at.Before(spell.To) && slices.Contains(e.Keys, a.Key) {
				calls[a.Header(plan.NameHeader)]++
				total++
			}
		}
		if total < enoughCalls*len(e.Replicas) {
			continue
		}
		even, off := float64(total)/float64(len(e.Replicas)), 0.0
		var here []Share
		for _, name := range e.Replicas {
			s := Share{name, calls[name], float64(calls[name]) / even}
			off = max(off, s.OfEven-1, 1-s.OfEven)
			here = append(here, s)
		}
		if off > furthest {
			worst, furthest = here, off
		}
	}
	switch {
	case furthest > shareWithin:
		return worst, bucket.Fail
	case furthest >= 0:
		return worst, bucket.Pass
	}
	return worst, outcome
}

// judge judges the promises that only a fleet makes.
func (e fleetJudge) judge(r *Report) {
	if !e.Options.IsFleet() {
		return
	}
	r.Replicas = len(e.Replicas)
	r.Aftermath = e.aftermath()
	r.Shares, r.Shared = e.shares()
	for _, s := range e.Strikes {
		if s.Unmended != "" {
			r.Unmended++
			r.example("not mended", s.Unmended)
		}
		if s.Kind != plan.CutPower {
			continue
		}
		if r.PowerCuts++; s.Rewritten != "" {
			r.CutRewriting++
		}
	}
	r.Trouble = map[string]int{}
	for _, t := range e.Troubles {
		r.Trouble[t.What]++
	}
	stamps := stamped(fakeapi.ByTime(e.Arrivals))
	v := bucket.Check(stamps, bucket.Expectation{Limit: bucket.Limit{Name: "concurrent", InFlight: e.InFlight}, Eps: e.HeldUp})
	r.AtOnce, r.AtOnceOutcome = v.Worst, v.Outcome
	if v.Outcome != bucket.Pass {
		r.example("too many at once", v.String())
	}
	e.judgeQuota(r, stamps)
}

// judgeQuota compares the arrivals with the quota of all keys together.
func (e fleetJudge) judgeQuota(r *Report, stamps []bucket.Arrival) {
	if e.Quota == 0 {
		return
	}
	quota := bucket.Quota{Count: e.Quota, Window: bucket.Sliding, Per: plan.QuotaPer}
	v := bucket.Check(stamps, bucket.Expectation{Limit: bucket.Limit{Name: "lately", Quota: &quota}, Jitter: e.jitter(), Eps: e.stampError()})
	switch v.Outcome {
	case bucket.Pass:
	case bucket.Fail:
		r.OverRate++
		r.example("over quota", v.String())
	case bucket.Inconclusive:
		r.Doubtful++
		r.example("doubtful", v.String())
	}
	if full := float64(v.Worst) / float64(v.Allowed); full > r.Fullest {
		r.Fullest, r.FullestOf = full, "lately"
	}
}

// fleetFindings returns the verdicts on the promises that only a fleet makes.
func (r *Report) fleetFindings() []Finding {
	missing, faults, behind, ofStores := 0, 0, 0, 0
	for _, a := range r.Aftermath {
		missing, faults = missing+a.Missing, faults+a.Of
		if a.Kind.OfStores() {
			behind, ofStores = behind+a.Behind, ofStores+a.Of
		}
	}
	resumed := Finding{bucket.Pass, "resumed", fmt.Sprintf("after %d of %d faults every key was called again within %v", faults-missing, faults, ResumesWithin)}
	if missing > 0 {
		resumed.Outcome = bucket.Fail
	}
	text := "no spell in which all were up and enough was called"
	if len(r.Shares) > 0 {
		text = ""
		for _, s := range r.Shares {
			text += fmt.Sprintf("%s %.0f %%, ", s.Replica, 100*s.OfEven)
		}
		text += fmt.Sprintf("of an even part, in the most uneven calm spell; %.0f %% may be missing or too much", 100*shareWithin)
	}
	atOnce := Finding{cmp.Or(r.AtOnceOutcome, bucket.Pass), "at once", fmt.Sprintf("%d calls at the most", r.AtOnce)}
	all := []Finding{atOnce, resumed, {cmp.Or(r.Shared, bucket.Pass), "work share", text}}
	if ofStores > 0 {
		copies := Finding{bucket.Pass, "copies", fmt.Sprintf("after %d of %d faults of stores every stream got all its copies again within %v", ofStores-behind, ofStores, CurrentWithin)}
		if behind > 0 {
			copies.Outcome = bucket.Fail
		}
		all = append(all, copies)
	}
	if r.PowerCuts > 0 {
		all = append(all, Finding{bucket.Pass, "power cuts", fmt.Sprintf("%d times all nodes lost what they had not synced, %d times while a block was rewritten",
			r.PowerCuts, r.CutRewriting)})
	}
	return all
}

// fleetLines prints the figures of a fleet.
func (r *Report) fleetLines(t *text) {
	t.add("        %-30s  %4s  %23s  %23s  %14s  %s", "", "", "a key without a call", "of it after the fault", "a producer", "failed")
	t.add("        %-30s  %4s  %23s  %23s  %14s  %s", "fault", "of", "p50, p99, max", "p50, p99, max", "without answer", "tries")
	for _, a := range r.Aftermath {
		t.add("        %-30s  %4d  %23s  %23s  %14s  %d", a.Kind, a.Of, a.Stall, a.After, short(a.Intake.Max), a.Trouble)
	}
	for _, what := range sortedKeys(r.Trouble) {
		t.add("        producers were told, and tried again: %s  %d times", what, r.Trouble[what])
	}
}

// ResumesWithin bounds how long it takes after a fault until every key is called again.
const ResumesWithin = 90 * time.Second

// Strike is a fault that a fleet has suffered.
type Strike struct {
	Kind      plan.Kind
	Target    string
	At, Ended time.Time // Ended: the fault is over, and killed processes were started again
	Rewritten string    // the block that a node rewrote at the moment of a power cut, or ""
	Behind    string    // after a fault of the nodes' stores: a stream that did not get all its copies again, or cannot be read from one
	Unmended  string    // messages that a node with flipped bytes does not have: nats-server is known to leave it so
	Over      time.Time // when every key was called again after Ended; zero: not within ResumesWithin
}

// CurrentWithin bounds how long awaitCurrent waits.
const CurrentWithin = 90 * time.Second
