package torture

import (
	"math/rand/v2"
	"slices"
	"time"
)

// way says how a configuration takes effect.
type way string

// The ways.
const (
	byApply   way = "config apply"
	byRestart way = "a changed file"             // the next start reads it, after kill -9
	byReload  way = "a changed file and SIGHUP"  // if weir reloads
	andKill   way = "config apply, then kill -9" // during the command, or shortly after
)

// change is a planned change of the configuration.
type change struct {
	setting string
	terms   terms
	way     way
	pause   time.Duration // before the change
	kill    time.Duration // andKill: the time from the start of the command, or from its end
	late    bool          // andKill: kill counts from the end of the command
	absent  time.Duration // how long a removed api stays away
}

// changeConfig is the kind under which changes of the configuration are counted.
const changeConfig kind = "configuration changes"

// changeable returns the settings that a run changes. If two weirs take turns, it leaves out limits that keys share. It
// leaves out the removal of an api with callbacks or reuse, because weir would post no ends during the removal and
// would forget answers.
func (o *Options) changeable() []setting {
	return slices.DeleteFunc(settings(), func(s setting) bool {
		return s.shared && o.Takeovers > 0 || s.name == removal && (o.Callbacks || o.Reuse) || len(o.Settings) > 0 && !slices.Contains(o.Settings, s.name)
	})
}

// newChanges returns the planned changes. Each change starts from the terms of the change before it.
func newChanges(r *rand.Rand, o *Options) []change {
	var all []change
	possible := o.changeable()
	ways := []way{byApply, andKill, byRestart, andKill}
	if o.Reloads {
		ways = append(ways, byReload)
	}
	if o.isFleet() {
		ways = []way{byApply}
	}
	r.Shuffle(len(possible), func(i, j int) { possible[i], possible[j] = possible[j], possible[i] })
	now := firstTerms(o)
	for n := range o.ConfigChanges {
		s := possible[n%len(possible)]
		c := change{
			setting: s.name, way: ways[r.IntN(len(ways))], pause: between(r, 100*time.Millisecond, 1500*time.Millisecond),
			kill: between(r, 0, 500*time.Millisecond), late: r.IntN(2) == 0, absent: between(r, 200*time.Millisecond, 1500*time.Millisecond),
		}
		s.change(r, &now)
		c.terms = now
		now.gone = false
		all = append(all, c)
	}
	return all
}
