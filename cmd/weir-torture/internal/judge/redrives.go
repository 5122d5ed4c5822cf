package judge

import (
	"fmt"
	"slices"
)

// Redrives says what became of the overflowed jobs after weir was told to redrive them.
type Redrives struct {
	Letters int      // of jobs that were refused and never called
	Kills   int      // of weir during the redrive
	Stops   int      // by an operator, each followed by a resume
	Gone    int      // letters that disappeared while the redrive was stopped
	Lost    []string // jobs without a result and without a letter
	Twice   []string // jobs that were called, or have ended, twice
	Called  int
	Left    int // letters of jobs that overflowed again, or whose calls a kill made unknown
}

// Overflowed returns the jobs that were refused because their bucket was full, and that were neither accepted nor
// called later.
func (e *Evidence) Overflowed() map[string]struct{} {
	of := map[string]struct{}{}
	for _, l := range e.Ends.Letters {
		if l.Reason == "overflow" {
			of[l.Job] = struct{}{}
		}
	}
	for id := range of {
		if _, taken := e.Ends.Taken[id]; taken || e.Ends.Results[id] > 0 {
			delete(of, id)
		}
	}
	for _, a := range e.calls() {
		delete(of, JobOf(&a))
	}
	return of
}

// Judge compares the ends and calls of jobs with the promises: each job has one end, and was called once. If a kill
// made a job's call unknown, the job is a letter again, which this redrive leaves alone.
func (r *Redrives) Judge(of map[string]struct{}, ends *Ends, calls map[string]int, idempotent bool) {
	letters := map[string]int{}
	for _, l := range ends.Letters {
		letters[l.Job]++
	}
	for id := range of {
		switch n := ends.Results[id] + letters[id]; {
		case n == 0:
			r.Lost = append(r.Lost, id)
		case n > 1, calls[id] > 1 && !idempotent:
			r.Twice = append(r.Twice, id)
		}
		r.Called += min(calls[id], 1)
		r.Left += min(letters[id], 1)
	}
	slices.Sort(r.Lost)
	slices.Sort(r.Twice)
}

// report adds the verdict to the report.
func (r *Redrives) report(into *Report) {
	for what, which := range map[string][]string{"redriven and lost": r.Lost, "redriven and called or ended twice": r.Twice} {
		for _, id := range which {
			into.example(what, id)
		}
	}
	into.Redriven, into.RedrivenLost, into.RedrivenTwice, into.RedrivenStopped = r.Letters, len(r.Lost), len(r.Twice), r.Gone
	into.Redrives = fmt.Sprintf("%d letters under %d kills and %d stops: %d called, %d are letters again; %d lost, %d twice, %d went while it was stopped",
		r.Letters, r.Kills, r.Stops, r.Called, r.Left, len(r.Lost), len(r.Twice), r.Gone)
}
