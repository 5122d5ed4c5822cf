package bucket

import (
	"cmp"
	"fmt"

	"weir/ingest"
)

// Priority is the priority that a producer gave a job.
type Priority = ingest.Priority

// The priorities.
const (
	High   = ingest.High
	Normal = ingest.Normal
	Low    = ingest.Low
)

// Priorities are all priorities, the most urgent first.
var Priorities = [...]Priority{High, Normal, Low}

// Weights divide the calls among priorities while jobs of several priorities wait for the same limit. A weight of 0
// stands for the default.
type Weights struct{ High, Normal, Low int64 }

// DefaultWeights are the weights of an api that configures none.
var DefaultWeights = Weights{High: 16, Normal: 4, Low: 1}

// MostWeight is the largest weight.
const MostWeight = 1000

// Of returns the weight of a priority.
func (w Weights) Of(p Priority) int64 {
	switch p {
	case High:
		return cmp.Or(w.High, DefaultWeights.High)
	case Low:
		return cmp.Or(w.Low, DefaultWeights.Low)
	case Normal:
	}
	return cmp.Or(w.Normal, DefaultWeights.Normal)
}

// Validate returns an error if a weight is out of bounds.
func (w Weights) Validate() error {
	for _, p := range Priorities {
		if n := w.Of(p); n < 1 || n > MostWeight {
			return fmt.Errorf("the weight of priority %s is %d; weights go from 1 to %d", p, n, MostWeight)
		}
	}
	return nil
}
