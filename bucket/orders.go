package bucket

// Orders remembers to which shared limits the costs of a grant belong. Costs follow the order that Rules.Shared had at
// the grant, and a call may outlive a change of rules. The zero value has seen no change.
type Orders struct {
	past     []order // oldest first
	unplaced int64   // grants below this serial are older than past
}

// order names the shared limits in the order of a grant's costs. It holds for grants whose serial is less than below.
type order struct {
	below int64
	names []string
}

// maxOrders is how many changes of rules a call may outlive and still be settled by its costs.
const maxOrders = 8

// Change notes that the costs of grants with serials less than below follow the order of shared.
func (o *Orders) Change(below int64, shared []Limit) {
	if len(shared) == 0 {
		return
	}
	last := order{below: below}
	for _, l := range shared {
		if l.Shadow {
			l.Name = "" // a shadow limit may not have counted the call, so it gets no units back
		}
		last.names = append(last.names, l.Name)
	}
	o.past = append(o.past, last)
	if len(o.past) > maxOrders {
		o.unplaced = o.past[0].below
		o.past = o.past[1:]
	}
}

// Place returns the index of the limit called name in the costs of u, or false if these costs do not have it. now is
// the limit's index in the present rules.
func (o *Orders) Place(u *Use, name string, now int) (int, bool) {
	if u.Grant.Serial < o.unplaced {
		return 0, false
	}
	for _, p := range o.past {
		if u.Grant.Serial >= p.below {
			continue
		}
		for i, n := range p.names {
			if n == name {
				return i, u.Costs == nil || i < len(u.Costs)
			}
		}
		return 0, false
	}
	return now, u.Costs == nil || now < len(u.Costs)
}
