package plan

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Way says how a configuration takes effect.
type Way string

// The ways.
const (
	ByApply   Way = "config apply"
	ByRestart Way = "a changed file"             // the next start reads it, after kill -9
	ByReload  Way = "a changed file and SIGHUP"  // if weir reloads
	AndKill   Way = "config apply, then kill -9" // during the command, or shortly after
)

// Change is a planned change of the configuration.
type Change struct {
	Setting string
	Terms   Terms
	Way     Way
	Pause   time.Duration // before the change
	Kill    time.Duration // AndKill: the time from the start of the command, or from its end
	Late    bool          // AndKill: kill counts from the end of the command
	Absent  time.Duration // how long a removed api stays away
}

// ChangeConfig is the kind under which changes of the configuration are counted.
const ChangeConfig Kind = "configuration changes"

// changeable returns the settings that a run changes. If two weirs take turns, it leaves out limits that keys share. It
// leaves out the removal of an api with callbacks or reuse, because weir would post no ends during the removal and
// would forget answers.
func (o *Options) changeable() []setting {
	return slices.DeleteFunc(settings(), func(s setting) bool {
		return s.shared && o.Takeovers > 0 || s.name == removal && (o.Callbacks || o.Reuse) || len(o.Settings) > 0 && !slices.Contains(o.Settings, s.name)
	})
}

// newChanges returns the planned changes. Each change starts from the terms of the change before it.
func newChanges(r *rand.Rand, o *Options) []Change {
	var all []Change
	possible := o.changeable()
	ways := []Way{ByApply, AndKill, ByRestart, AndKill}
	if o.Reloads {
		ways = append(ways, ByReload)
	}
	if o.IsFleet() {
		ways = []Way{ByApply}
	}
	r.Shuffle(len(possible), func(i, j int) { possible[i], possible[j] = possible[j], possible[i] })
	now := FirstTerms(o)
	for n := range o.ConfigChanges {
		s := possible[n%len(possible)]
		c := Change{
			Setting: s.name, Way: ways[r.IntN(len(ways))], Pause: between(r, 100*time.Millisecond, 1500*time.Millisecond),
			Kill: between(r, 0, 500*time.Millisecond), Late: r.IntN(2) == 0, Absent: between(r, 200*time.Millisecond, 1500*time.Millisecond),
		}
		s.change(r, &now)
		c.Terms = now
		now.Gone = false
		all = append(all, c)
	}
	return all
}
