package torture

import (
	"slices"
	"time"
)

// inForce is a configuration, and when it was in force, as far as that is visible from outside.
type inForce struct {
	terms terms
	from  time.Time // the earliest time at which it may have taken effect
	by    time.Time // from then on it held, and none before it; zero: unknown
}

// lingers is how long a call may still arrive under a configuration after another took effect: slots and calls keep the
// terms that they were given.
const lingers = mostJitter + time.Second

// timeline holds the configurations of a run, in the order in which they took effect.
type timeline []inForce

// changed reports whether there was more than one.
func (l timeline) changed() bool { return len(l) > 1 }

// possible returns the terms under which a call that arrived between two times may have been made.
func (l timeline) possible(from, to time.Time) []terms {
	first := 0
	for i, c := range l {
		if !c.by.IsZero() && !c.by.Add(lingers).After(from) {
			first = i // it had replaced all before it
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

// edges returns the times at which possible changes.
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
