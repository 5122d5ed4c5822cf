package judge

import (
	"fmt"
	"strings"
	"time"

	"weir/bucket"
)

// TableHead is the head of the table whose lines Row returns.
const TableHead = `| seed | faults | accepted | lost | twice | out of order | over | unknown | not mended | time | verdict |
|---|---|---|---|---|---|---|---|---|---|---|
`

// Row returns the report as one line of a table. twice counts jobs that were called, billed or ended twice, over the
// windows above a limit.
func (r *Report) Row() string {
	faults := r.WorkerKills + r.ServerKills
	if r.Replicas > 0 {
		faults = 0
		for _, a := range r.Aftermath {
			faults += a.Of
		}
	} else {
		for _, n := range r.Faults {
			faults += n
		}
	}
	return fmt.Sprintf("| %d | %d | %d | %d | %d | %d | %d | %d | %d | %s | %s |\n", r.Seed, faults, r.Accepted, r.Lost+r.Waiting,
		r.CalledTwice+r.BilledTwice+r.EndedTwice, r.OutOfOrder, r.OverRate, r.Unknown, r.Unmended, r.Took.Round(time.Second), r.verdict())
}

// verdict returns PASS, or FAIL, with the names of the promises that were broken and of those that are in doubt.
func (r *Report) verdict() string {
	var broken, doubtful []string
	for _, f := range r.Findings {
		switch f.Outcome {
		case bucket.Fail:
			broken = append(broken, f.Name)
		case bucket.Inconclusive:
			doubtful = append(doubtful, f.Name)
		case bucket.Pass:
		}
	}
	says := "PASS"
	if len(broken) > 0 {
		says = "FAIL: " + strings.Join(broken, ", ")
	}
	if len(doubtful) > 0 {
		says += "; in doubt: " + strings.Join(doubtful, ", ")
	}
	return says
}
