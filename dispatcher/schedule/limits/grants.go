package limits

// Grants counts the calls that were granted a slot under one policy and are not settled.
type Grants struct {
	open   int
	others bool    // other processes, or other apis, use the store too
	former *Grants // the grants of the newest earlier policy that has such calls; nil for none
}

// NewGrants returns grants without calls.
func NewGrants(others bool) *Grants { return &Grants{others: others} }

// Under returns the grants of a new policy. Their former grants are g, or if all calls of g are settled, the newest
// unsettled grants before g.
func (g *Grants) Under(others bool) *Grants { return &Grants{others: others, former: g.unsettled()} }

// unsettled returns g if a call of g is not settled, else the newest former grants with such a call; nil if all calls
// are settled.
func (g *Grants) unsettled() *Grants {
	for g != nil && g.open == 0 {
		g = g.former
	}
	return g
}

// Hidden reports whether units may come back that this policy's limits have not counted as reserved: units of other
// processes' calls, or of calls that were granted under a former policy.
func (g *Grants) Hidden() bool { return g.others || g.former.unsettled() != nil }

// Release ends the reservation of a granted call, and reports whether these limits had counted it.
func (limits Shared) Release(c *Call) (counted bool) {
	if c.reserved == nil {
		return false
	}
	c.reserved.open--
	counted = len(limits) > 0 && c.reserved == limits[0].grants
	c.reserved = nil
	if !counted {
		return false
	}
	for i := range limits.of(c.Costs) {
		limits[i].open -= c.Costs[i]
	}
	return true
}

// Unbegin takes back a call that was counted as started and has not left.
func (limits Shared) Unbegin(c *Call) {
	if len(limits) == 0 || c.reserved != limits[0].grants {
		return // its costs belong to former rules
	}
	for i := range limits.of(c.Costs) {
		if l := &limits[i]; l.Rate != nil {
			l.started.correct(l.Rate, c.began, c.began, -c.Costs[i])
		}
	}
}
