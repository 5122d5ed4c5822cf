package schedule

// grants counts the calls that were granted a slot under one policy and are not settled.
type grants struct {
	open   int
	others bool    // other processes, or other apis, use the store too
	former *grants // the grants of the newest earlier policy that has such calls; nil for none
}

// under returns the grants of a new policy. Their former grants are g, or if all calls of g are settled, the newest
// unsettled grants before g.
func (g *grants) under(others bool) *grants { return &grants{others: others, former: g.unsettled()} }

// unsettled returns g if a call of g is not settled, else the newest former grants with such a call; nil if all calls
// are settled.
func (g *grants) unsettled() *grants {
	for g != nil && g.open == 0 {
		g = g.former
	}
	return g
}

// hidden reports whether units may come back that this policy's limits have not counted as reserved: units of other
// processes' calls, or of calls that were granted under a former policy.
func (g *grants) hidden() bool { return g.others || g.former.unsettled() != nil }

// release ends the reservation of a granted job, and reports whether these limits had counted it.
func (limits SharedLimits) release(j *Job) (counted bool) {
	if j.reserved == nil {
		return false
	}
	j.reserved.open--
	counted = len(limits) > 0 && j.reserved == limits[0].grants
	j.reserved = nil
	if !counted {
		return false
	}
	for i := range limits.of(j.Costs) {
		limits[i].open -= j.Costs[i]
	}
	return true
}

// unbegin takes back a call that was counted as started and has not left.
func (limits SharedLimits) unbegin(j *Job) {
	if len(limits) == 0 || j.reserved != limits[0].grants {
		return // its costs belong to former rules
	}
	for i := range limits.of(j.Costs) {
		if l := &limits[i]; l.Rate != nil {
			l.started.correct(l.Rate, j.began, j.began, -j.Costs[i])
		}
	}
}
