package webhook

import (
	"cmp"
	"slices"
	"time"
)

// mostListed bounds given.Ends, because the position that contains the list is written once a second.
const mostListed = 64

// given counts the messages that weir gave up, without letters that were redriven or purged.
type given struct {
	Count uint64     `json:"count"`
	At    time.Time  `json:"at"` // when the last message was given up
	Why   string     `json:"why"`
	Ends  []givenEnd `json:"ends,omitempty"` // the given-up ends with the greatest sequences, in ascending order
	// Unlisted is a sequence: Ends may lack given-up ends at or before it.
	Unlisted uint64 `json:"unlisted,omitempty"`
}

// givenEnd is an end that was given up.
type givenEnd struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// and returns g after n further messages were given up, the last of them at last.At. If last.Seq is not 0, last is an
// end and gets into the list. The list of g itself does not change, because it may be in use.
func (g given) and(n int, last givenEnd) given {
	g.Count, g.At, g.Why = g.Count+uint64(n), last.At, last.Why
	i, isListed := g.find(last.Seq)
	if last.Seq == 0 || isListed {
		return g
	}
	g.Ends = slices.Insert(slices.Clone(g.Ends), i, last)
	if len(g.Ends) > mostListed {
		g.Unlisted = max(g.Unlisted, g.Ends[0].Seq)
		g.Ends = g.Ends[1:]
	}
	return g
}

// find returns the place of an end in the list, and whether it is there.
func (g *given) find(seq uint64) (place int, listed bool) {
	return slices.BinarySearchFunc(g.Ends, seq, func(e givenEnd, seq uint64) int { return cmp.Compare(e.Seq, seq) })
}
