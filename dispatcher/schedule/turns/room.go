package turns

import "weir/bucket"

// roundRobin holds the queues that wait for room to make a job ready. Tenants take turns of one job each, and so do the
// queues of a tenant.
type roundRobin[Q Queue[Q]] struct {
	tenants []*tenant[Q]
	size    int
}

// push makes a queue wait for room for a job of a priority, unless it already waits.
func (r *roundRobin[Q]) push(q Q, p bucket.Priority) {
	own := q.Seats().of(p)
	if own.Queued {
		return
	}
	own.Queued = true
	t := own.tenant
	if len(t.queued) == 0 {
		r.tenants = append(r.tenants, t)
	}
	t.queued = append(t.queued, q)
	r.size++
}

// pop takes the queue whose turn it is. At least one queue must be waiting.
func (r *roundRobin[Q]) pop(p bucket.Priority) Q {
	t := r.tenants[0]
	r.tenants[0] = nil
	r.tenants = r.tenants[1:]
	q := t.queued[0]
	t.queued[0] = *new(Q)
	t.queued = t.queued[1:]
	if len(t.queued) > 0 {
		r.tenants = append(r.tenants, t)
	} else {
		t.queued = nil
	}
	r.size--
	q.Seats().of(p).Queued = false
	return q
}
