package torture

import (
	"slices"
	"time"
)

// inForce is a configuration and the times between which it took effect, as seen from outside.
type inForce struct {
	terms terms
	from  time.Time // it was not in force before
	by    time.Time // it was certainly in force from then on, alone; zero: unknown
}

// lingers is how long after a configuration was replaced a call may still arrive under it, because slots and calls keep
// the terms that they were given.
const lingers = mostJitter + time.Second

// timeline has the configurations of a run, in order.
type timeline []inForce

// changed reports whether there was more than one configuration.
func (l timeline) changed() bool { return len(l) > 1 }

// possible returns the terms under which a call that arrived between two times may have been made.
func (l timeline) possible(from, to time.Time) []terms {
	first := 0
	for i, c := range l {
		if !c.by.IsZero() && !c.by.Add(lingers).After(from) {
			first = i // it has replaced all before it
		}
	}
	var all []terms
	for i, c := range l {
		if i == first || i > first && !c.from.After(to) {
			all = append(all, c.terms)
		}
	}
	return all
}

// edges returns the times at which the result of possible changes.
func (l timeline) edges() []time.Time {
	var all []time.Time
	for _, c := range l {
		all = append(all, c.from)
		if !c.by.IsZero() {
			all = append(all, c.by.Add(lingers))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}
