package judge

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// stretch is a span in which a key certainly had one rate.
type stretch struct {
	plan.Span
	rate bucket.Rate
}

// rateJudge holds arrivals against the rates that were in force.
type rateJudge struct{ *Evidence }

// judge compares the arrivals of each key, and of all keys together, with the limits: strictly while the limit is
// certain, otherwise with the loosest possible one.
func (e rateJudge) judge(r *Report) {
	for _, key := range append([]string{""}, fakeapi.KeysOf(e.Arrivals)...) {
		of := fakeapi.ByTime(e.Arrivals)
		if key != "" {
			of = fakeapi.OfKey(e.Arrivals, key)
		}
		for _, s := range e.stretches(key) {
			e.judgeStretch(r, key, s.rate, e.between(of, s.Span))
		}
		if e.Timeline.Changed() {
			e.judgeAcross(r, key, of)
		}
	}
}

// stretches returns the spans in which a key's rate is certain.
func (e rateJudge) stretches(key string) []stretch {
	edges := append([]time.Time{{}}, e.Timeline.Edges()...)
	edges = append(edges, e.Began.Add(100*365*24*time.Hour))
	var all []stretch
	for i, from := range edges[:len(edges)-1] {
		to := edges[i+1]
		if !from.Before(to) {
			continue
		}
		rates := ratesOf(e.Timeline.Possible(from, to.Add(-1)), key)
		if len(rates) != 1 || rates[0] == nil {
			continue
		}
		if n := len(all); n > 0 && all[n-1].To.Equal(from) && all[n-1].rate == *rates[0] {
			all[n-1].To = to
			continue
		}
		all = append(all, stretch{plan.Span{From: from, To: to}, *rates[0]})
	}
	return all
}

// ratesOf returns the different rates of a key in several terms. Nil stands for no rate.
func ratesOf(several []plan.Terms, key string) []*bucket.Rate {
	var rates []*bucket.Rate
	for i := range several {
		var is *bucket.Rate
		if rate, ok := several[i].RateOf(key); ok {
			is = &rate
		}
		if !slices.ContainsFunc(rates, func(r *bucket.Rate) bool { return r == is || r != nil && is != nil && *r == *is }) {
			rates = append(rates, is)
		}
	}
	return rates
}

// between returns the arrivals in a span.
func (e rateJudge) between(of []fakeapi.Arrival, s plan.Span) []fakeapi.Arrival {
	var in []fakeapi.Arrival
	for i := range of {
		if at := e.Began.Add(time.Duration(of[i].At)); !at.Before(s.From) && at.Before(s.To) {
			in = append(in, of[i])
		}
	}
	return in
}

func (e rateJudge) judgeStretch(r *Report, key string, rate bucket.Rate, of []fakeapi.Arrival) {
	v := bucket.Check(stamped(of), bucket.Expectation{Limit: bucket.Limit{Name: key, Rate: &rate}, Jitter: e.jitter(), Eps: e.stampError()})
	windows := tooFull(of, rate)
	switch v.Outcome {
	case bucket.Pass:
	case bucket.Fail:
		r.OverRate += max(1, windows)
		r.example("over rate", key+": "+v.String())
	case bucket.Inconclusive:
		r.Doubtful += max(1, windows)
		r.example("doubtful", key+": "+v.String())
	}
	if full := float64(v.Worst) / float64(v.Allowed); full > r.Fullest {
		r.Fullest, r.FullestOf = full, key
	}
}

// jitter returns the largest jitter that any configuration of this run had.
func (e *Evidence) jitter() time.Duration {
	if e.Timeline.Changed() {
		return plan.MostJitter
	}
	return plan.Jitter
}

// judgeAcross judges the windows in which more than one rate may have held.
func (e rateJudge) judgeAcross(r *Report, key string, of []fakeapi.Arrival) {
	var all []plan.Terms
	for _, c := range e.Timeline {
		all = append(all, c.Terms)
	}
	var pers []time.Duration
	for _, rate := range ratesOf(all, key) {
		if rate != nil && !slices.Contains(pers, rate.Per) {
			pers = append(pers, rate.Per)
		}
	}
	for _, per := range pers {
		for i := range of {
			from := e.Began.Add(time.Duration(of[i].At))
			rates := ratesOf(e.Timeline.Possible(from, from.Add(per)), key)
			if len(rates) < 2 || slices.Contains(rates, nil) {
				continue
			}
			loosest := slices.MaxFunc(rates, func(a, b *bucket.Rate) int {
				return int(a.Count*int64(b.Per/time.Millisecond) - b.Count*int64(a.Per/time.Millisecond))
			})
			if loosest.Per != per {
				continue
			}
			switch n := loosest.Count; {
			case within(of[i:], per-e.stampError()) > n:
				r.OverRate++
				r.example("over rate", key+": more than the loosest of two configurations allows, at "+from.Format(time.RFC3339Nano))
			case within(of[i:], per) > n:
				r.Doubtful++
			}
		}
	}
}

// within counts the arrivals in a window that begins with the first of them.
func within(of []fakeapi.Arrival, per time.Duration) (n int64) {
	for i := range of {
		if of[i].At-of[0].At >= int64(per) {
			break
		}
		n++
	}
	return n
}
