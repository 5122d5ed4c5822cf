package reuse

// mostHeld bounds the jobs that Groups holds. If there are more, each further job is called, and no other job gets its
// answer.
const mostHeld = 1 << 16

// Groups holds, by Sum, the jobs that ask the same thing now. These are the leader, which is called for all, and the
// jobs that have not started. J names a job. The zero value is empty; the caller must lock it.
type Groups[J comparable] struct {
	by map[Sum]*group[J]
	of map[J]*group[J]
}

// group holds the jobs of one Sum.
type group[J comparable] struct {
	sum     Sum
	leads   bool // there is a leader
	leader  J
	waiting map[J]struct{}
}

// Leader returns the job that is called for all jobs with a Sum.
func (g *Groups[J]) Leader(s Sum) (leader J, leads bool) {
	if of := g.by[s]; of != nil {
		return of.leader, of.leads
	}
	return leader, false
}

// Held returns the Sum under which a job is held, and whether the job leads the others of that Sum. held is false if
// the job is not held.
func (g *Groups[J]) Held(j J) (s Sum, leads, held bool) {
	if of := g.of[j]; of != nil {
		return of.sum, of.leads && of.leader == j, true
	}
	return s, false, false
}

// Lead makes a job the leader of its Sum, unless there is another leader, or too many jobs are held. It reports whether
// the job leads.
func (g *Groups[J]) Lead(j J, s Sum) bool {
	if leader, leads := g.Leader(s); leads {
		return leader == j
	}
	of := g.enter(j, s)
	if of == nil {
		return false
	}
	delete(of.waiting, j)
	of.leader, of.leads = j, true
	return true
}

// Wait holds a job that has not started. When the leader of its Sum leaves, Leave returns the job. If too many jobs are
// held, Wait returns false and does not hold the job.
func (g *Groups[J]) Wait(j J, s Sum) bool {
	of := g.enter(j, s)
	if of == nil {
		return false
	}
	if of.waiting == nil {
		of.waiting = map[J]struct{}{}
	}
	of.waiting[j] = struct{}{}
	return true
}

// Leave drops a job. If the job led others, Leave returns the jobs that waited for it; they stay held.
func (g *Groups[J]) Leave(j J) (waited []J) {
	of := g.of[j]
	if of == nil {
		return nil
	}
	_, leads, _ := g.Held(j)
	delete(g.of, j)
	if leads {
		var none J
		of.leader, of.leads = none, false
		waited = g.Waiters(of.sum)
	}
	delete(of.waiting, j)
	g.drop(of)
	return waited
}

// Waiters returns the jobs with a Sum that have not started.
func (g *Groups[J]) Waiters(s Sum) (waiters []J) {
	if of := g.by[s]; of != nil {
		for j := range of.waiting {
			waiters = append(waiters, j)
		}
	}
	return waiters
}

// All returns every held job.
func (g *Groups[J]) All() []J {
	all := make([]J, 0, len(g.of))
	for j := range g.of {
		all = append(all, j)
	}
	return all
}

// Waiting returns how many jobs wait for the answer of a leader.
func (g *Groups[J]) Waiting() (n int) {
	for _, of := range g.by {
		if of.leads {
			n += len(of.waiting)
		}
	}
	return n
}

// enter adds a job to the group of a Sum and returns the group. It returns nil if too many jobs are held.
func (g *Groups[J]) enter(j J, s Sum) *group[J] {
	if had := g.of[j]; had != nil && had.sum == s {
		return had
	} else if had != nil {
		panic("reuse: a job is held under another request") // the caller must let it leave first
	}
	if len(g.of) >= mostHeld {
		return nil
	}
	if g.by == nil {
		g.by, g.of = map[Sum]*group[J]{}, map[J]*group[J]{}
	}
	of := g.by[s]
	if of == nil {
		of = &group[J]{sum: s}
		g.by[s] = of
	}
	g.of[j] = of
	return of
}

func (g *Groups[J]) drop(of *group[J]) {
	if !of.leads && len(of.waiting) == 0 {
		delete(g.by, of.sum)
	}
}
