package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest"
)

// If an api takes several jobs in one call, the schedule says which jobs may go together: a pack. The job that leads
// the pack reads the others when it is made ready, and writes one message for all. A job does not go with those before
// it if the call would be too large, would never pass a limit, or would ask for something else. The leader then puts
// this job and all later ones back, in their order.

// errShort says that a pack must be called again with the same jobs, but one of them cannot be read now.
var errShort = errors.New("not all jobs of a pack that is to be called again could be loaded")

// assemble makes a pack of a loaded job and the members that the schedule gave it, and reports whether the pack may be
// called. If not, the job rests or has ended.
func (w *caller) assemble(ctx context.Context, j *lane.Job) bool {
	of := j.Terms.API.Pack
	w.Mu.Lock()
	members := w.membersLocked(j)
	w.Mu.Unlock()
	if of == nil { // the configuration has just changed
		w.shed(j, 0)
		return true
	}
	p := &lane.Pack{ID: ingest.NewID(), Sum: j.Terms.NewSum()}
	if why := w.take(p, j); why != nil {
		w.Unstage(j)
		w.settler.Bury(ctx, j, deadletter.Invalid, why.Error(), nil)
		return false
	}
	bound := j.Bound()
	for i, m := range members {
		end, fits := w.join(ctx, p, j, m)
		if fits {
			continue
		}
		if bound != nil {
			w.short(ctx, j, m, end)
			return false
		}
		w.shed(j, i)
		break
	}
	w.form(j, p, bound)
	return true
}

// membersLocked returns the jobs that the schedule lets go in one call with j, without j.
func (w *caller) membersLocked(j *lane.Job) []*lane.Job {
	of := j.Members()
	members := make([]*lane.Job, len(of))
	for i, m := range of {
		members[i] = lane.JobLocked(m)
	}
	return members
}

// take adds a job to a pack. The job's message must have been read. take fails if no pack can take the job.
func (w *caller) take(p *lane.Pack, j *lane.Job) error {
	item, match, err := j.Terms.API.Pack.Item(j.Message)
	if err != nil {
		return err
	}
	if err := p.Sum.Add(j.Message); err != nil {
		return err
	}
	p.Jobs, p.Items, p.Matches, p.Size = append(p.Jobs, j), append(p.Items, item), append(p.Matches, match), p.Size+int64(len(item))
	return nil
}

// join reads the job m and adds it to the pack p, which j leads. If m does not fit, end may be set: it ends m. The
// caller must let m settle before it calls end.
func (w *caller) join(ctx context.Context, p *lane.Pack, j, m *lane.Job) (end func() bool, fits bool) {
	w.Mu.Lock()
	m.Bind(j.Terms)
	removed := m.Part.IsRemovedLocked(m.Seq)
	w.Mu.Unlock()
	bury := func(reason deadletter.Reason, detail string) func() bool {
		return func() bool { w.settler.Bury(ctx, m, reason, detail, nil); return true }
	}
	if removed {
		return func() bool { w.settler.BuryMissing(ctx, m, queue.DeletedByOthers); return true }, false
	}
	entry, err := w.memory.TryLoad(ctx, m)
	if errors.Is(err, settle.ErrNoRoom) {
		return nil, false
	}
	if err != nil {
		return func() bool { return w.settler.GivenUp(ctx, m, err) }, false
	}
	pack := ""
	if m.Bond != nil {
		pack = m.Bond.ID
	}
	if reason, detail := w.examine(m, entry, pack); reason != "" {
		return bury(reason, detail), false
	}
	was := *p
	if !httpcall.Alike(j.Message, m.Message) {
		return bury(deadletter.Unknown, m.InDoubt(j.Terms.API)), false
	}
	if err := w.take(p, m); err != nil {
		return bury(deadletter.Invalid, err.Error()), false
	}
	if m.Bond == nil && !p.Fits(j.Terms.API.Pack, m.Part.Bucket.MostMarkers()) {
		*p = was
		return nil, false
	}
	return nil, true
}

// shed puts the members of a job's pack back, from the n-th on.
func (w *caller) shed(j *lane.Job, n int) {
	w.Update(func(s *schedule.Schedule) {
		if n < len(j.Members()) {
			s.Shed(j.Job, n)
		}
	})
}

// short lets a pack rest that must be called again with the same jobs, because its member m cannot be called. If end is
// not nil, short calls it to end m. The other jobs are then parked when their turn comes.
func (w *caller) short(ctx context.Context, j, m *lane.Job, end func() bool) {
	w.Update(func(s *schedule.Schedule) {
		s.Shed(j.Job, 0)
		m.Settle()
	})
	if end == nil || !end() {
		w.Update(func(*schedule.Schedule) { w.RestLocked(m, w.Now().Add(lane.LoadRetry)) })
	}
	w.unprepared(ctx, j, errShort)
}

// form makes the message of a pack whose jobs are all known, and makes j its leader. If the jobs must be called in the
// same pack as before, bound is that pack; otherwise it is nil.
func (w *caller) form(j *lane.Job, p *lane.Pack, bound *queue.Pack) {
	api := j.Terms.API
	if bound != nil {
		p.ID = bound.ID
		sort(p)
	}
	m := *j.Message
	m.ID, m.Body = p.ID, api.Pack.Body(p.Items)
	m.Forward = asked(m.Forward, api.Pack)
	p.Message, p.Items = &m, nil
	reserve, price := w.settlements.tollOf(&api.Rules, p.Sum.By)
	shares := p.Shares(price, nil)
	// The record of the first job has all units of the call, but only that job's part of the price.
	for i := range reserve.Estimates {
		if api.Rules.Shared[i].Budget != nil {
			reserve.Estimates[i] = p.Shares(reserve.Estimates[i], nil)[0]
		}
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	j.Leads = p
	for i, of := range p.Jobs {
		of.In, of.Bill.Reserved = &queue.Pack{ID: p.ID, Place: i, Of: len(p.Jobs)}, shares[i]
		of.Costs, of.Bill.Estimates = nil, nil
	}
	p.Jobs[0].Costs, p.Jobs[0].Bill.Estimates = reserve.Costs, reserve.Estimates
	j.Costs = reserve.Costs
}

// sort puts the jobs of a pack that is called again into the order of its earlier call.
func sort(p *lane.Pack) {
	order := make([]int, len(p.Jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p.Jobs[a].Bond.Place, p.Jobs[b].Bond.Place) })
	was := *p
	p.Jobs, p.Items, p.Matches = nil, nil, nil
	for _, i := range order {
		p.Jobs, p.Items, p.Matches = append(p.Jobs, was.Jobs[i]), append(p.Items, was.Items[i]), append(p.Matches, was.Matches[i])
	}
}

// asked returns the headers of a pack's call. The jobs of a pack set the same headers. If they set no Content-Type,
// asked adds the one for the pack's body: lines or JSON.
func asked(forward []ingest.HeaderField, of *httpcall.Pack) []ingest.HeaderField {
	const lines, text = "application/x-ndjson", "application/json"
	i := slices.IndexFunc(forward, func(f ingest.HeaderField) bool { return http.CanonicalHeaderKey(f.Name) == "Content-Type" })
	switch {
	case i >= 0:
		return forward // the producer knows
	case of.Request.Lines:
		return append(slices.Clone(forward), ingest.HeaderField{Name: "Content-Type", Value: lines})
	}
	return append(slices.Clone(forward), ingest.HeaderField{Name: "Content-Type", Value: text})
}

// disband ends the pack that a job leads, if any, because the job is not called now.
func (w *caller) disband(j *lane.Job) {
	if j.Leads != nil {
		w.Update(func(*schedule.Schedule) { j.DisbandLocked() })
	}
}

// divide gives each job of a pack its part of the answer and its share of the price. All units that the call took are
// charged to the job at place 0. began is when the call began, by the lane's clock.
func (w *caller) divide(j *lane.Job, r httpcall.Response, began bucket.Micros) {
	p, api := j.Leads, j.Terms.API
	w.Env.Metrics.Packed.WithLabelValues(w.Name).Add(float64(len(p.Jobs)))
	p.Parts = api.Pack.Parts(api, r, j.Judge(r), p.Matches)
	free := func(i int) bool { return p.Parts[i].Outcome.Billed == deadletter.NotBilled }
	shares, whole := p.Shares(j.Bill.Paid, free), j.Bill.Charged(j.Costs)
	usage, unsettled := j.Bill.Usage, j.Bill.Unsettled
	for i, m := range p.Jobs {
		m.Bill.Paid, m.Bill.Usage, m.Bill.Unsettled = shares[i], nil, nil
		if m.Bill.Taken = make([]int64, len(whole)); i == 0 {
			m.Bill.Usage, m.Bill.Unsettled = usage, unsettled
			copy(m.Bill.Taken, whole)
		}
		for k := range whole {
			if api.Rules.Shared[k].Budget != nil && whole[k] > 0 {
				m.Bill.Taken[k] = shares[i]
			}
		}
		p.Flights[i].LandPart(m, &p.Parts[i])
		m.Answered(p.Parts[i].Response)
		if m != j && m.Calls == 1 {
			w.observeWait(m, m.Came().Until(began))
		}
	}
}
