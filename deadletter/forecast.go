package deadletter

import (
	"fmt"
	"math"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// Terms are the parts of an api's configuration that a redrive needs.
type Terms struct {
	Rules      bucket.Rules
	MaxBody    int64 // of a job, in bytes
	Price      int64 // of a call, in millionths of the currency unit
	Idempotent bool
	Keyed      string           // how its calls carry idempotency keys, as in Letter.Keyed without a time
	KnowsKeys  time.Duration    // how long the api knows a key; 0: always
	Key        ingest.KeySource // where the api's jobs name their key
	// Dedupe is how long the api's queue knows a job's id. It is also the largest assumed difference between the
	// servers' clocks.
	Dedupe time.Duration
}

// keyInSubject reports whether the api's jobs name their key in the subject.
func (t *Terms) keyInSubject() bool { return t.Key == ingest.KeySource{} }

// load is all that a redrive will publish to one api.
type load struct {
	jobs  int64
	units []float64           // for each limit that all keys share
	keys  map[string][]uint32 // by key: the places of its letters in the whole redrive, from 0
}

// add adds a letter. place is how many letters of the redrive are published before it.
func (l *load) add(k *Kept, rules *bucket.Rules, place int) {
	if l.keys == nil {
		l.keys, l.units = map[string][]uint32{}, make([]float64, len(rules.Shared))
	}
	l.jobs++
	l.keys[k.Key] = append(l.keys[k.Key], uint32(place)) // at most MaxRedrive
	for i := range rules.Shared {
		l.units[i] += units(k, rules.Shared[i].Cost)
	}
}

// units returns how many units a letter's job takes from a limit, as far as its headers show: see ingest.Cost.Guess.
func units(k *Kept, cost ingest.Cost) float64 { return float64(cost.Guess(k.Header)) }

// drain returns how long the api's limits need for the waiting jobs and then the load, and the limit that needs
// longest.
func (l *load) drain(api string, t *Terms, waiting map[string]uint64) (longest time.Duration, slowest string) {
	slower := func(seconds float64, what string) {
		if d := durationOf(seconds); d > longest {
			longest, slowest = d, what
		}
	}
	ahead := float64(0)
	for _, n := range waiting {
		ahead += float64(n)
	}
	for key, places := range l.keys {
		limits := t.Rules.For(key)
		calls := float64(int64(len(places))+int64(waiting[key])) - float64(limits.Rate.Burst)
		slower(calls/t.Rules.Interval(limits.Rate).PerSecond(), "the bucket of "+api+"/"+key)
	}
	for i := range t.Rules.Shared {
		limit := &t.Rules.Shared[i]
		if limit.Shadow {
			continue
		}
		by := t.Rules.By(limit)
		what, all := fmt.Sprintf("limit %s of %s", limit.Name, api), l.units[i]+ahead
		switch limit.Kind() {
		case bucket.KindRate:
			slower((all-float64(limit.Rate.Burst))/by.Interval(*limit.Rate).PerSecond(), what)
		case bucket.KindQuota:
			slower(periods(all, by.Lowered(limit.Quota.Count))*period(limit.Quota).Seconds(), what)
		case bucket.KindInFlight: // depends on how long calls take, which is unknown here
		case bucket.KindBudget:
			spent := float64(t.Price) * (float64(l.jobs) + ahead)
			slower(periods(spent, by.Lowered(limit.Budget.Count))*period(&limit.Budget.Quota).Seconds(), what)
		}
	}
	return longest, slowest
}

// overflow returns how many jobs of the load would find no room beside the waiting jobs if all came at once.
func (l *load) overflow(t *Terms, waiting map[string]uint64) (n int64) {
	for key, places := range l.keys {
		n += max(0, int64(len(places))-max(0, t.Rules.For(key).Capacity-int64(waiting[key])))
	}
	return n
}

// periods returns how many periods must pass until a quota has let all units through, if it is unused now.
func periods(all float64, count int64) float64 { return max(0, math.Ceil(all/float64(count))-1) }

// period returns the length of a quota's period. A calendar month counts as 31 days.
func period(q *bucket.Quota) time.Duration {
	const day = 24 * time.Hour
	switch {
	case q.Window != bucket.Calendar:
		return q.Per
	case q.Unit == bucket.Hour:
		return time.Hour
	case q.Unit == bucket.Day:
		return day
	case q.Unit == bucket.Week:
		return 7 * day
	}
	return 31 * day
}

// durationOf converts seconds into a Duration from 0 to the longest one.
func durationOf(seconds float64) time.Duration {
	if seconds >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(max(0, seconds) * 1e9)
}
