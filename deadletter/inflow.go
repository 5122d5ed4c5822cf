package deadletter

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
)

// A redrive publishes its letters one after another, at its rate and in the order of their numbers, while buckets
// drain. So the overflow depends on the rate, and on how the letters of one key are spread among those of other keys.
// The simulation covers both. It ignores what is unknown here: new jobs of producers, pushback, holds, and how long
// calls take.

// inflow has, for each key, the bucket and the letters that a redrive will send to it.
type inflow []*loadedKey

// loadedKey is one key's bucket, and the letters that will arrive at it.
type loadedKey struct {
	places   []uint32 // of its letters in the order of publishing, counted from 0 over all letters
	waiting  float64  // jobs in the bucket now
	capacity float64
	drains   float64 // jobs per second
}

// rateMargin is the part of a bucket's rate that roomy counts on, because calls do not end at even intervals.
const rateMargin = 0.9

// overflow returns how many letters find no room if one is published each time the seconds of every have passed. Part,
// from 0 to 1, is the share of its rate at which each bucket drains.
func (f inflow) overflow(every, part float64) (n int64) {
	for _, k := range f {
		depth, last := k.waiting, 0.0
		for _, place := range k.places {
			at := float64(place) * every
			depth, last = max(0, depth-k.drains*part*(at-last)), at
			if depth+1 > k.capacity {
				n++
				continue
			}
			depth++
		}
	}
	return n
}

// slowestOffer is the longest interval between letters that roomy offers, in seconds: 10 minutes.
const slowestOffer = 600.0

// roomy returns the highest rate, slower than above, at which no letter should overflow. It returns false if there is
// none.
func (f inflow) roomy(above bucket.Rate) (bucket.Rate, bool) {
	fast, slow := above.Per.Seconds()/float64(above.Count), slowestOffer
	if fast >= slow || f.overflow(slow, rateMargin) > 0 {
		return bucket.Rate{}, false
	}
	for slow/fast > 1.01 {
		if middle := math.Sqrt(fast * slow); f.overflow(middle, rateMargin) > 0 {
			fast = middle
		} else {
			slow = middle
		}
	}
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if n := int64(per.Seconds() / slow); n >= 10 || n >= 1 && per == time.Hour {
			return bucket.Rate{Count: n, Per: per, Burst: 1}, true
		}
	}
	return bucket.Rate{}, false
}

// inflow returns the load's letters by bucket. waiting is how many jobs wait in each key's queue now. Each bucket gets
// a part of a shared rate in proportion to its letters.
func (l *load) inflow(t *Terms, waiting map[string]uint64) inflow {
	shared := math.Inf(1)
	for i := range t.Rules.Shared {
		if limit := &t.Rules.Shared[i]; !limit.Shadow && limit.Kind() == bucket.KindRate && l.units[i] > 0 {
			shared = min(shared, t.Rules.By(limit).Interval(*limit.Rate).PerSecond()*float64(l.jobs)/l.units[i])
		}
	}
	keys := make(inflow, 0, len(l.keys))
	for key, places := range l.keys {
		limits := t.Rules.For(key)
		keys = append(keys, &loadedKey{
			places: places, waiting: float64(waiting[key]), capacity: float64(limits.Capacity),
			drains: min(t.Rules.Interval(limits.Rate).PerSecond(), shared*float64(len(places))/float64(l.jobs)),
		})
	}
	return slices.Clip(keys)
}
