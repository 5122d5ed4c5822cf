package bucket

import "weir/ingest"

// Capacity is the largest cost that limit l can ever let pass, headroom counted; a permit is always one.
func (r Rules) Capacity(l Limit) int64 {
	switch {
	case l.Rate != nil:
		return l.Rate.Burst
	case l.Quota != nil:
		return r.Lowered(l.Quota.Count)
	case l.Budget != nil:
		return r.Lowered(l.Budget.Count)
	default:
		return 1 << 52
	}
}

// CostBounds are what the costs of jobs are judged by when they come in: the limits that take their cost from the job. A
// shadow limit holds nothing, and so refuses nothing.
func (r Rules) CostBounds() []ingest.CostBound {
	var bounds []ingest.CostBound
	for i := range r.Shared {
		l := &r.Shared[i]
		if from := l.Cost.FromJob(); !l.Shadow && l.Budget == nil && (from.Header != "" || from.Pointer != "") {
			bounds = append(bounds, ingest.CostBound{Limit: l.Name, From: from, Most: r.Capacity(*l)})
		}
	}
	return bounds
}

// FromJob is the part of the source that the job itself tells, before its call.
func (c CostSource) FromJob() ingest.CostSource {
	return ingest.CostSource{Constant: c.Constant, Header: c.Header, Pointer: c.Pointer}
}
