package webhook

import (
	"cmp"
	"slices"
	"time"
)

// mostListed bounds the ends in given.Ends: the position is written once a second.
const mostListed = 64

// given counts the messages that weir gave up, without letters that were redriven or purged.
type given struct {
	Count uint64     `json:"count"`
	At    time.Time  `json:"at"` // when the last message was given up
	Why   string     `json:"why"`
	Ends  []givenEnd `json:"ends,omitempty"` // the given-up ends with the greatest sequences, in their order
	// Unlisted is the newest sequence up to which Ends may lack an end that was given up.
	Unlisted uint64 `json:"unlisted,omitempty"`
}

// givenEnd is an end that was given up.
type givenEnd struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// and returns g with n further messages that were given up. If last is one end, it is listed. The lists of g and of the
// returned value share no memory, because g may be in use.
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
