// Package seeds says which seeds the simulations run.
package seeds

import (
	"flag"
	"iter"
)

var (
	first = flag.Uint64("seed", 0, "the first seed of the simulations")
	more  = flag.Uint64("seeds", 0, "how many seeds each simulation runs, 0 for as many as -all says")
	all   = flag.Bool("all", false, "each simulation runs all its seeds, and not one in twenty")
)

// Of returns the seeds of a simulation: as many as -seeds says, or n with -all, or else a twentieth of n.
func Of(n uint64) iter.Seq[uint64] {
	switch {
	case *more > 0:
		n = *more
	case !*all:
		n /= 20
	}
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(*first + i) {
				return
			}
		}
	}
}
