package torture

import (
	"slices"
	"time"
)

// inForce is a configuration and when it was in force, as far as can be told from outside.
type inForce struct {
	terms terms
	from  time.Time // it may have been from then on
	by    time.Time // from then on it was, and none before it; zero: that is not known
}

// lingers is for how long a call may arrive under a configuration after another is in force: its slot was given before, and
// slots and calls keep the terms that they began with.
const lingers = mostJitter + time.Second

// timeline are the configurations of a run, in the order in which they were put in force.
type timeline []inForce

// changed reports whether there was more than one.
func (l timeline) changed() bool { return len(l) > 1 }

// possible are the terms by which a call may have been made that arrived between two times.
func (l timeline) possible(from, to time.Time) []terms {
	first := 0
	for i, c := range l {
		if !c.by.IsZero() && !c.by.Add(lingers).After(from) {
			first = i // it had taken the place of all before it
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

// edges are the times at which what is possible changes.
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
