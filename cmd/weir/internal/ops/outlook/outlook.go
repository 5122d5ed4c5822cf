package outlook

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/whatif"
)

// Outlook is what recorded jobs say about the limits of a configuration.
type Outlook struct {
	Account string    `json:"account,omitempty"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	APIs    []*API    `json:"apis"`
	// Days are the days of UTC from the first job on, the newest last. The last one is that of the last job, or the last
	// whole day that was read.
	Days []Day `json:"days"`
	// Growth is the line through the whole days; absent if there are fewer than three.
	Growth *Growth `json:"growth,omitempty"`
	// Breaks says how many times as many jobs the buckets bear; absent if it is more than was tried.
	Breaks *Break `json:"breaks,omitempty"`
	// Tried is the largest load that was tried.
	Tried float64 `json:"tried_load"`
	// SoughtOn are the days with most jobs of all apis together, if loads were sought with the jobs of these alone,
	// because there are too many jobs. A load above 1 is then one that these days do not bear: others may bear less.
	SoughtOn []string `json:"sought_on,omitempty"`
	// Limits are the limits that keys share, with the use of the busiest whole day; absent without a whole day.
	Limits []LimitUse `json:"limits,omitempty"`
	Notes  []string   `json:"notes"` // what the plan does not know

	Gaps
}

// API is the outlook of one api.
type API struct {
	API string `json:"api"`
	Seen

	// Present is what the limits of the configuration would have done.
	Present *whatif.Outcome `json:"present"`
	// Overflowing are the keys of which jobs would have overflowed, those with most such jobs first.
	Overflowing []Needs `json:"overflowing"`
	More        int     `json:"more_overflowing,omitempty"` // keys that are not listed
	// Suggested is the smallest capacity at which nothing would have overflowed; absent if nothing overflowed, or only
	// because of max_wait.
	Suggested *whatif.Outcome `json:"suggested,omitempty"`
	// WithoutMaxWait says that max_wait is left out of Suggested and of what keys need: with it jobs may still overflow.
	WithoutMaxWait bool `json:"without_max_wait,omitempty"`
	// Rate is the rate of the bucket at which nothing would have overflowed with the present capacities, if the rates of
	// single keys and the buckets of the other apis are raised alike; "" if there is none, or if nothing overflowed.
	Rate string `json:"rate,omitempty"`
}

// Needs is a key of which jobs would have overflowed.
type Needs struct {
	whatif.OfKey

	Capacity int64 `json:"capacity"` // of its bucket
	// Needs is the capacity at which none of its jobs would have overflowed; absent if no capacity is enough, because
	// they overflowed for max_wait alone.
	Needs int `json:"needs,omitempty"`
}

// Day is how many jobs came on a day of UTC.
type Day struct {
	Day  string `json:"day"`
	Jobs int    `json:"jobs"`
}

// Break is the smallest load, up to a twentieth, that the buckets or a budget do not bear.
type Break struct {
	Load float64 `json:"load"` // how many times as many jobs
	API  string  `json:"api"`
	Key  string  `json:"key,omitempty"` // the key that overflows first, or most with a load of 1; "" if a budget stops jobs
	// InDays is when so many jobs come by the growth; absent if that is not within a year, or if no clear growth is known.
	// 0: they have come already.
	InDays *int `json:"in_days,omitempty"`
}

// Bounds of an outlook.
const (
	mostOverflowing = 20      // keys that are listed for each api
	mostDays        = 62      // the ledger keeps no more
	mostSought      = 100_000 // jobs with which loads and at first rates are sought; the busiest day may have more
	triedLoad       = 4.0     // the largest load that is tried if the jobs do not grow
)

// Of runs the recorded jobs under the configuration's limits, and follows their growth. It calls progress with the
// number of jobs of each run. It blocks until all runs have ended, or ctx ends. There are some ten runs, most of them
// with the busiest days only.
func Of(ctx context.Context, r *Recorded, progress func(jobs int)) (*Outlook, error) {
	o := &Outlook{Account: r.Account, Since: r.Since.UTC(), Until: r.Until.UTC(), Gaps: r.Gaps, Notes: r.Notes()}
	if o.Notes == nil {
		o.Notes = []string{}
	}
	days := r.days()
	for _, d := range days {
		o.Days = append(o.Days, Day{d.Begin.Time().Format(time.DateOnly), d.Jobs})
	}
	o.Growth = r.growth(days)
	o.Limits = r.limitUses(o.Growth)
	parts := r.parts()
	present, err := whatif.RunAll(ctx, parts, 1, progress)
	if err != nil {
		return nil, fmt.Errorf("run the recorded jobs: %w", err)
	}
	over := 0
	for i, p := range r.Pasts {
		a := &API{API: p.API.Name, Seen: p.Seen, Present: present[i], Overflowing: []Needs{}}
		o.APIs = append(o.APIs, a)
		over += a.Present.Overflowed
	}
	if over > 0 {
		if err := o.addNeeds(ctx, r, parts, progress); err != nil {
			return nil, err
		}
	}
	sought := o.busiest(parts, days)
	if over > 0 {
		if err := o.addRates(ctx, parts, sought, progress); err != nil {
			return nil, err
		}
	}
	return o, o.addBreak(ctx, sought, progress)
}

// busiest returns the parts with the jobs of the busiest days only, if there are more than mostSought jobs. So the runs
// that seek loads and rates end soon.
func (o *Outlook) busiest(parts []whatif.Part, days []whatif.Day) []whatif.Part {
	all := 0
	for _, d := range days {
		all += d.Jobs
	}
	if all <= mostSought {
		return parts
	}
	byJobs := slices.Clone(days)
	slices.SortStableFunc(byJobs, func(a, b whatif.Day) int { return cmp.Compare(b.Jobs, a.Jobs) })
	on, n := map[bucket.Micros]bool{}, 0
	for _, d := range byJobs {
		if n += d.Jobs; n > mostSought && len(on) > 0 {
			break
		}
		on[d.Begin] = true
		o.SoughtOn = append(o.SoughtOn, d.Begin.Time().Format(time.DateOnly))
	}
	slices.Sort(o.SoughtOn)
	o.Notes = append(o.Notes, "the loads that the limits bear were sought on the busiest days only: "+strings.Join(o.SoughtOn, ", "))
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Trace = parts[i].Trace.On(on)
	}
	return parts
}

// parts returns the apis with their traces, to run together. If other apis of the account were not read, the rules of
// an api are those without these other apis.
func (r *Recorded) parts() (parts []whatif.Part) {
	for _, p := range r.Pasts {
		c := whatif.CandidateOf(p.API)
		if r.Alone {
			c.Rules = c.Rules.Alone()
		}
		parts = append(parts, whatif.Part{Trace: p.trace, Candidate: c})
	}
	return parts
}

// addNeeds sets the capacities that would have been enough for the keys that overflow.
func (o *Outlook) addNeeds(ctx context.Context, r *Recorded, parts []whatif.Part, progress func(int)) error {
	roomy := append([]whatif.Part(nil), parts...)
	for i := range roomy {
		roomy[i].Candidate = roomy[i].Candidate.WithCapacity(0)
	}
	free, err := whatif.RunAll(ctx, roomy, 1, progress)
	if err != nil {
		return fmt.Errorf("seek a capacity: %w", err)
	}
	for i := range roomy {
		if o.APIs[i].Present.Overflowed > 0 {
			roomy[i].Candidate = roomy[i].Candidate.WithCapacity(int64(max(1, free[i].Deepest.Depth)))
		} else {
			roomy[i] = parts[i]
		}
	}
	enough, err := whatif.RunAll(ctx, roomy, 1, progress)
	if err != nil {
		return fmt.Errorf("seek a capacity: %w", err)
	}
	for i, a := range o.APIs {
		if a.Present.Overflowed == 0 {
			continue
		}
		rules := r.Pasts[i].API.Rules
		for _, k := range a.Present.Overflowing() {
			n := needsOf(k, rules.For(k.Key), free[i].Of(k.Key).Deepest)
			if a.Overflowing = append(a.Overflowing, n); n.Needs > 0 && enough[i].Overflowed == 0 {
				enough[i].Suggested = true
				a.Suggested = enough[i]
			}
		}
		a.More = max(0, len(a.Overflowing)-mostOverflowing)
		a.Overflowing = a.Overflowing[:len(a.Overflowing)-a.More]
		a.WithoutMaxWait = rules.Key.MaxWait > 0 ||
			slices.ContainsFunc(rules.Overrides, func(over bucket.Override) bool { return over.MaxWait != nil && *over.MaxWait > 0 })
	}
	return nil
}

// needsOf returns what an overflowing key needs. deepest is the most jobs that its bucket would have held with enough
// room and without max_wait.
func needsOf(k whatif.OfKey, limits bucket.KeyLimits, deepest int) Needs {
	n := Needs{OfKey: k, Capacity: limits.Capacity, Needs: deepest}
	if limits.MaxWait > 0 && int64(deepest) <= limits.Capacity {
		n.Needs = 0
	}
	return n
}

// addRates sets the rates at which nothing would have overflowed with the present capacities. It seeks them with the
// jobs of the busiest days, and then seeks with all jobs from the found rates on.
func (o *Outlook) addRates(ctx context.Context, parts, sought []whatif.Part, progress func(int)) error {
	factor, err := whatif.Faster(ctx, sought, 1, progress)
	if err == nil && factor > 0 && len(o.SoughtOn) > 0 {
		factor, err = whatif.Faster(ctx, parts, factor, progress)
	}
	if err != nil {
		return fmt.Errorf("seek a rate: %w", err)
	}
	for i, a := range o.APIs {
		if factor > 0 && a.Present.Overflowed > 0 {
			a.Rate = grammar.FormatRate(parts[i].Candidate.Faster(factor).Rules.Key.Rate)
		}
	}
	return nil
}

// addBreak seeks the smallest load that the limits do not bear. If the jobs grow, it tries loads up to that of the day
// mostAhead days from now.
func (o *Outlook) addBreak(ctx context.Context, parts []whatif.Part, progress func(int)) error {
	o.Tried = triedLoad
	if o.Growth.grows() {
		o.Tried = max(1.01, min(whatif.MostLoad, math.Round(o.Growth.in(mostAhead)*100)/100))
	}
	var outcomes []*whatif.Outcome
	load := 1.0
	for _, a := range o.APIs {
		outcomes = append(outcomes, a.Present)
	}
	if !slices.ContainsFunc(outcomes, func(out *whatif.Outcome) bool { return out.Overflowed+out.OverBudget > 0 }) {
		var err error
		if load, outcomes, err = whatif.Breaks(ctx, parts, o.Tried, progress); err != nil {
			return fmt.Errorf("seek the load that the limits bear: %w", err)
		}
	}
	if load == 0 {
		return nil
	}
	b := &Break{Load: math.Round(load*100) / 100, InDays: o.Growth.until(load)}
	for i, out := range outcomes {
		if over := out.Overflowing(); len(over) > 0 {
			b.API, b.Key = o.APIs[i].API, over[0].Key
			break
		}
		if out.OverBudget > 0 && b.API == "" {
			b.API = o.APIs[i].API
		}
	}
	o.Breaks = b
	return nil
}

// growth returns the growth that the whole days among days show. It counts days ahead from r.Now.
func (r *Recorded) growth(days []whatif.Day) *Growth {
	g := growthOf(jobsOf(r.whole(days)))
	if g != nil {
		_, last := r.wholeSpan()
		g.ago = float64(dayOf(r.Now) - last)
	}
	return g
}

// days returns the jobs of all apis by day, without gaps: from the first job on, until the last job or the last whole
// day.
func (r *Recorded) days() []whatif.Day {
	byDay, first, last := map[bucket.Micros]*whatif.Day{}, bucket.Micros(math.MaxInt64), bucket.Micros(0)
	for _, p := range r.Pasts {
		for _, d := range p.trace.Days(mostDays) {
			if of := byDay[d.Begin]; of != nil {
				of.Jobs, of.Calls = of.Jobs+d.Jobs, of.Calls+d.Calls
			} else {
				byDay[d.Begin] = &d
			}
			first, last = min(first, d.Begin), max(last, d.Begin)
		}
	}
	const perDay = bucket.Micros(24 * time.Hour / time.Microsecond)
	_, read := r.wholeSpan()
	last = max(last, bucket.Micros(read)*perDay)
	var days []whatif.Day
	for at := max(first, last-(mostDays-1)*perDay); at <= last; at += perDay {
		if of := byDay[at]; of != nil {
			days = append(days, *of)
		} else {
			days = append(days, whatif.Day{Begin: at})
		}
	}
	return days
}

// wholeSpan returns the numbers of the first and the last whole day. A whole day lies within the time that was read,
// and its records and letters are still kept. If a bound ended the reading, the last such day does not count: some of
// its jobs ended later, and were not read.
func (r *Recorded) wholeSpan() (first, last int64) {
	from := r.Since
	for _, begin := range []time.Time{r.Begins, r.LettersBegin} {
		if begin.After(from) {
			from = begin
		}
	}
	first, last = wholeDays(from, r.Until)
	if !r.ReadUntil.IsZero() {
		last--
	}
	return first, last
}

// whole returns the days that lie within wholeSpan. None of them is before the first job.
func (r *Recorded) whole(days []whatif.Day) []whatif.Day {
	first, last := r.wholeSpan()
	var whole []whatif.Day
	for _, d := range days {
		if number := dayOf(d.Begin.Time()); number >= first && number <= last {
			whole = append(whole, d)
		}
	}
	return whole
}

func jobsOf(days []whatif.Day) (jobs []int) {
	for _, d := range days {
		jobs = append(jobs, d.Jobs)
	}
	return jobs
}
