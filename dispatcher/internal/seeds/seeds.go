// Package seeds says which seeds the simulations run.
package seeds

import (
	"flag"
	"iter"
)

var (
	first = flag.Uint64("seed", 0, "the first seed of the simulations")
	more  = flag.Uint64("seeds", 0, "how many seeds each simulation runs, 0 for as many as each has in the test run")
)

// Of are the seeds of a simulation: n of them, or as many as the flags say. The race detector makes each ten times as slow and
// has little to look for in one goroutine: it gets a few, and `make simulation` runs all of them without it.
func Of(n uint64) iter.Seq[uint64] {
	switch {
	case *more > 0:
		n = *more
	case raced:
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
