package config

import (
	"fmt"
	"math"

	"weir/bucket"
	"weir/bucket/queue"
)

// usualPartitions is how many partitions an api has unless WEIR_PARTITIONS says otherwise.
const usualPartitions = 8

// warnOfIDs warns if so many jobs may end within dedupe that memory cannot hold their ids: those of one key, which has
// one partition, or of all.
func (c *Config) warnOfIDs(f fields) {
	for i := range c.APIs {
		a := &c.APIs[i]
		all := math.Inf(1)
		for _, l := range a.Rules.Shared {
			switch l.Kind() {
			case bucket.KindRate:
				all = min(all, c.endsOf(*l.Rate)/float64(max(1, l.Cost.Usual())))
			case bucket.KindQuota, bucket.KindInFlight, bucket.KindBudget: // they do not bound the ends within dedupe
			}
		}
		one := min(all, c.endsOf(a.Rules.Key.Rate))
		if one <= queue.SureIDs && (math.IsInf(all, 1) || all <= usualPartitions*queue.SureIDs) {
			continue
		}
		most := all
		if math.IsInf(all, 1) {
			most = one
		}
		f.place("dedupe").warn(fmt.Sprintf("as many as %.0f jobs of api %s may end within %s, and each of its partitions remembers the ids of %d: "+
			"a job beyond that which is sent again after a restart of its server may be called again", most, a.Name, c.Dedupe, queue.SureIDs),
			"lower dedupe")
	}
}

// endsOf returns how many jobs can end at a rate while an id is remembered.
func (c *Config) endsOf(r bucket.Rate) float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Count) * c.Dedupe.Seconds() / r.Per.Seconds()
}
