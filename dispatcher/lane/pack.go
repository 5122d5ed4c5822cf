package lane

import (
	"cmp"
	"fmt"
	"slices"

	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// A pack is the jobs of one call. The schedule says which jobs may go together. The dispatcher reads them, and puts
// those back that do not fit in one call with the jobs before them. Each job of a pack has its own intent, record,
// result or letter, and its own end. What concerns only the call is recorded with the job at place 0.

// Pack is the jobs of one call that is being made ready, or made.
type Pack struct {
	ID      string          // the call's idempotency key
	Jobs    []*Job          // in the order of the call's body
	Items   [][]byte        // the parts of the body, one for each job
	Matches []string        // the values by which the answers to the jobs are found
	Size    int64           // bytes of the items
	Sum     Sum             // what the call takes
	Message *ingest.Job     // what is sent
	Flights []*Flight       // the flight of each job, once the call begins
	Parts   []httpcall.Part // the part of the answer for each job, once the call has ended
	unseen  []bool          // Unseen of each job before the call
}

// Allowed reports whether the earlier calls of every job of the pack permit another one now.
func (p *Pack) Allowed() bool {
	return !slices.ContainsFunc(p.Jobs, func(j *Job) bool { return !j.mayJoin() })
}

// mayJoin is Allows for a job of a pack that is about to be called.
func (j *Job) mayJoin() bool { return j.Doubt.Allows(j.Terms.API, j.In.ID, j.Part.W.WallNow()) }

// Fits reports whether one call may have the pack's jobs. The jobs before the last one have passed this check already.
// intents is how many bytes the intents of the jobs may have together. Fits checks the number of jobs too, because the
// schedule may have chosen them by former terms.
func (p *Pack) Fits(of *httpcall.Pack, intents int64) bool {
	n := len(p.Jobs)
	return n <= of.Jobs && int64(n)*p.Sum.terms.Intent <= intents && (of.Match == "" || !slices.Contains(p.Matches[:n-1], p.Matches[n-1])) &&
		p.Size+of.Overhead(n) <= of.Bytes && p.Sum.Passes()
}

// DepartLocked counts the call that j leads as a call of each other job of the pack too, and gives each of them j's
// slot.
func (p *Pack) DepartLocked(j *Job) {
	p.unseen = make([]bool, len(p.Jobs))
	for i, m := range p.Jobs {
		if m == j {
			continue
		}
		m.Calls++
		p.unseen[i], m.Unseen = m.Unseen, false
		m.Grant, m.At, m.Holdup = j.Grant, j.At, j.Holdup
	}
}

// ReturnLocked undoes DepartLocked, because the call was not made.
func (p *Pack) ReturnLocked(j *Job) {
	for i, m := range p.Jobs {
		if m != j {
			m.Calls--
			m.Unseen = p.unseen[i]
		}
	}
}

// Fly makes the flight recorder note the call that j leads for each job of the pack. The call begins only if all these
// notes are made.
func (p *Pack) Fly(j *Job, first *Flight, h *httpcall.Hooks) {
	h.Most = int64(len(p.Jobs)) * j.Terms.API.Room()
	p.Flights = make([]*Flight, len(p.Jobs))
	for i, m := range p.Jobs {
		if p.Flights[i] = first; m != j {
			f := *first
			f.entry, f.stale = m.Entry, m.Adopted
			p.Flights[i] = &f
		}
	}
	left := h.Left
	h.Begins = func() bool {
		return !slices.ContainsFunc(p.Flights, func(f *Flight) bool { return !f.Begins() })
	}
	h.Left = func() {
		for _, f := range p.Flights {
			if f != first {
				f.Left()
			}
		}
		left()
	}
}

// CalledIn returns the id of the pack in which a job in doubt is called again as the leader. It returns "" if the job
// has no bond, or if the pack cannot be called again as it was.
func (j *Job) CalledIn() string {
	if j.Bond == nil || j.IsBroken() {
		return ""
	}
	return j.Bond.ID
}

// Allows reports whether a job's earlier calls permit another one now. api has the present terms.
func (j *Job) Allows(api *httpcall.API) bool {
	return j.Doubt.Allows(api, j.CalledIn(), j.Part.W.WallNow())
}

// WhyNot says why the api may treat another call of the job as a new one.
func (j *Job) WhyNot(api *httpcall.API) string {
	if j.Bond == nil {
		return j.Doubt.WhyNot(api, "", true)
	}
	return j.Doubt.WhyNot(api, j.Bond.ID, !j.IsBroken())
}

// BindLocked ties a job to the pack of its calls if the api may have processed one of these calls. Otherwise it frees
// the job. All such calls were made for one pack. This is the first of packs that is not nil, or else the pack to which
// the job is tied already. A call that found no connection was made for no pack.
func (j *Job) BindLocked(packs ...*queue.Pack) {
	pack := cmp.Or(cmp.Or(packs...), j.Bound())
	j.Bond = nil
	if j.Doubt.Keyed() != "" {
		j.TieLocked(pack)
	}
}

// TieLocked ties a job to the pack of its last call; it does nothing if to is nil. The tie lasts until it is known
// whether the api may have processed that call. Until then the other jobs of the pack are not called again.
func (j *Job) TieLocked(to *queue.Pack) {
	if to != nil {
		j.Bond = &schedule.Bond{ID: to.ID, Place: to.Place, Of: to.Of}
	}
}

// Bound returns the pack to which the job is tied, in the form that marks store; nil for none.
func (j *Job) Bound() *queue.Pack {
	if j.Bond == nil {
		return nil
	}
	return &queue.Pack{ID: j.Bond.ID, Place: j.Bond.Place, Of: j.Bond.Of}
}

// EvenLocked sets the attempts of each job of a pack to those of the job with the fewest. The pack must be called again
// as it was, and as often as a new job may be called. A job that joined it as a retry must not park it earlier.
func (p *Pack) EvenLocked() {
	fewest := slices.MinFunc(p.Jobs, func(a, b *Job) int { return cmp.Compare(a.Attempts, b.Attempts) }).Attempts
	for _, j := range p.Jobs {
		j.Attempts = fewest
	}
}

// DisbandLocked ends the pack that a job leads, because the pack is not called now. The schedule has freed the members:
// they rest, or are about to.
func (j *Job) DisbandLocked() {
	p := j.Leads
	if p == nil {
		return
	}
	j.Leads = nil
	for _, m := range p.Jobs {
		m.In = nil
		if m != j {
			m.DropIntentsLocked()
		}
	}
}

// Sum adds up what the jobs of one call take. If a term of a cost reads the job, it counts once for each job. A fixed
// term counts once for the call.
type Sum struct {
	terms  *Terms
	price  []int64
	shared [][]int64 // numbers for each limit; nil for a budget, and for a shadow limit whose cost cannot be read
	shadow []bool    // shadow limits whose cost cannot be read from one of the jobs
}

// NewSum returns a sum over no jobs.
func (c *Terms) NewSum() Sum {
	n := len(c.API.Rules.Shared)
	return Sum{terms: c, shared: make([][]int64, n), shadow: make([]bool, n)}
}

// Add adds a job. If it fails, the sum is unchanged.
func (s *Sum) Add(j *ingest.Job) error {
	price, err := added(s.terms.API.PriceTerms(), s.price, j)
	if err != nil {
		return fmt.Errorf("price: %w", err)
	}
	shared, shadow := slices.Clone(s.shared), slices.Clone(s.shadow)
	for i, limit := range s.terms.API.Rules.Shared {
		if limit.Budget != nil || shadow[i] {
			continue
		}
		if shared[i], err = added(limit.Cost, s.shared[i], j); err != nil && !limit.Shadow {
			return fmt.Errorf("limit %s: %w", limit.Name, err)
		}
		shadow[i] = err != nil
	}
	s.price, s.shared, s.shadow = price, shared, shadow
	return nil
}

// added adds the numbers of a cost for one more job to those of the jobs before it. It does not add fixed terms up.
func added(of ingest.Cost, to []int64, j *ingest.Job) ([]int64, error) {
	numbers, err := of.Numbers(j)
	if err != nil {
		return nil, err
	}
	for i := range to {
		if of[i].From.IsPlace() {
			numbers[i] = min(numbers[i]+to[i], ingest.MostUnits)
		}
	}
	return numbers, nil
}

// By returns what the call takes. It calls units for each cost, as Terms.TollBy does.
func (s *Sum) By(units Units) (t Toll) {
	rules := &s.terms.API.Rules
	t.Price = units(OfPrice, s.terms.API.PriceTerms(), slices.Clone(s.price))
	if len(rules.Shared) == 0 {
		return t
	}
	t.Costs = make([]int64, len(rules.Shared))
	for i := range rules.Shared {
		switch {
		case rules.Shared[i].Budget != nil:
			t.Costs[i] = t.Price
		case s.shadow[i]:
			t.Costs[i] = 1
		default:
			t.Costs[i] = units(i, rules.Shared[i].Cost, slices.Clone(s.shared[i]))
		}
	}
	return t
}

// Passes reports whether a call with this sum can pass each limit of the api.
func (s *Sum) Passes() bool {
	estimate := s.By(func(_ int, of ingest.Cost, numbers []int64) int64 { return of.Sum(numbers) })
	for _, bound := range s.terms.API.Rule.Costs {
		units := estimate.Price
		if i := slices.Index(s.terms.API.Rules.Names(), bound.Limit); i >= 0 {
			units = estimate.Costs[i]
		}
		if units > bound.Most {
			return false
		}
	}
	return true
}

// TollBehind is Toll for a job of a pack that is not at place 0. It leaves out the fixed terms, because they count once
// for the call, with the job at place 0.
func (c *Terms) TollBehind(j *ingest.Job) (Toll, error) {
	t, err := c.TollBy(j, func(_ int, of ingest.Cost, numbers []int64) int64 {
		if of == nil {
			return 0
		}
		for i := range of {
			if !of[i].From.IsPlace() {
				numbers[i] = 0
			}
		}
		return of.Sum(numbers)
	})
	return t, err
}

// Shares divides the price of a pack's call among its jobs. The fixed part is divided evenly among the jobs that were
// billed. The rest is divided among all jobs in proportion to their own estimates. free reports whether the job at
// index i was not billed. If free is nil or true for all jobs, all of them bear the fixed part. The shares add up to
// the price.
func (p *Pack) Shares(price int64, free func(i int) bool) []int64 {
	own := make([]int64, len(p.Jobs))
	sum := int64(0)
	for i, j := range p.Jobs {
		if t, err := j.Terms.TollBehind(j.Message); err == nil {
			own[i] = t.Price
		}
		sum += own[i]
	}
	all := make([]int, len(own))
	for i := range all {
		all[i] = i
	}
	bear := all
	if free != nil {
		if bear = slices.DeleteFunc(slices.Clone(all), free); len(bear) == 0 {
			bear = all
		}
	}
	shares, left, n := make([]int64, len(own)), price, int64(len(bear))
	estimated := p.Sum.By(func(_ int, of ingest.Cost, numbers []int64) int64 { return of.Sum(numbers) }).Price
	fixed := max(0, min(price, estimated-sum))
	if sum == 0 {
		fixed = price
	}
	for i := range shares {
		if sum > 0 {
			shares[i] = int64(float64(price-fixed) * (float64(own[i]) / float64(sum)))
		}
		left -= shares[i]
	}
	for _, i := range bear {
		shares[i] += fixed / n
		left -= fixed / n
	}
	shares[bear[0]] += left // what the divisions leave over
	return shares
}
