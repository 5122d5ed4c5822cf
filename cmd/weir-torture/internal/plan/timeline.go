package plan

import (
	"slices"
	"time"
)

// Span is a span of wall-clock time.
type Span struct{ From, To time.Time }

// InForce is a configuration and the times between which it took effect, as seen from outside.
type InForce struct {
	Terms Terms
	From  time.Time // it was not in force before
	By    time.Time // it was certainly in force from then on, alone; zero: unknown
}

// lingers is how long after a configuration was replaced a call may still arrive under it, because slots and calls keep
// the terms that they were given.
const lingers = MostJitter + time.Second

// Timeline has the configurations of a run, in order.
type Timeline []InForce

// Changed reports whether there was more than one configuration.
func (l Timeline) Changed() bool { return len(l) > 1 }

// Possible returns the terms under which a call that arrived between two times may have been made.
func (l Timeline) Possible(from, to time.Time) []Terms {
	first := 0
	for i, c := range l {
		if !c.By.IsZero() && !c.By.Add(lingers).After(from) {
			first = i // it has replaced all before it
		}
	}
	var all []Terms
	for i, c := range l {
		if i == first || i > first && !c.From.After(to) {
			all = append(all, c.Terms)
		}
	}
	return all
}

// Edges returns the times at which the result of possible changes.
func (l Timeline) Edges() []time.Time {
	var all []time.Time
	for _, c := range l {
		all = append(all, c.From)
		if !c.By.IsZero() {
			all = append(all, c.By.Add(lingers))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}
