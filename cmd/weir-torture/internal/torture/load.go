package torture

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
)

// loads returns the loads of the steady keys, of one key that gets more jobs than its bucket holds, and of one that is
// called rarely.
func (o *Options) loads() []load {
	every := time.Duration(o.Keys) * time.Second / time.Duration(o.Jobs)
	loads := []load{
		{o: o, key: burstKey, every: 2 * time.Second, many: 2 * burstHolds, first: 1},
		{o: o, key: slowKey, every: slowPer + 2*jitter, many: 1, first: 3},
	}
	for _, key := range o.keys() {
		loads = append(loads, load{o: o, key: key, every: every, many: 1, first: 1})
	}
	return loads
}

// job returns the nth job of a load.
func (l *load) job(n int) job {
	j := job{key: l.key, id: fmt.Sprintf("%s-%06d", l.key, n)}
	if l.o.Priorities {
		j.priority = bucket.Priorities[n%len(bucket.Priorities)]
	}
	if l.o.Reuse {
		j.ask = fmt.Sprint(askQuery, n%asks)
	}
	if l.o.Settled {
		t := tokensOf(n)
		j.tokens = &t
	}
	return j
}

// keys returns the steady keys. In a fleet each partition has the same number of them.
func (o *Options) keys() []string {
	var keys []string
	in := map[int]int{}
	for n := 1; len(keys) < o.Keys; n++ {
		key := fmt.Sprintf("k%d", n)
		if p := queue.PartitionOf(key, o.partitions()); !o.isFleet() || in[p] < o.Keys/o.partitions() {
			in[p]++
			keys = append(keys, key)
		}
	}
	return keys
}
