package weirtest

import (
	"weir/bucket"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/store"
)

// CheckStarts checks the ledger: the order of first calls in each key, and the planned slots against limits. A busy
// machine distorts neither.
func (r *Rig) CheckStarts(limits ...bucket.Limit) {
	r.T.Helper()
	var slots []bucket.Arrival
	last := map[string]uint64{}
	for _, c := range store.RecordsOf(r.T, r.JS) {
		if c.Call == 1 && c.Seq < last[c.API+c.Key] {
			r.T.Errorf("key %s: job %d was first called after job %d", c.Key, c.Seq, last[c.API+c.Key])
		}
		if len(limits) > 0 && (len(c.Limits) == 0 || len(c.Costs) != len(c.Limits)) {
			r.T.Fatalf("a record does not tell its costs: %+v", c)
		}
		last[c.API+c.Key] = max(last[c.API+c.Key], c.Seq)
		slots = append(slots, bucket.Arrival{At: c.Planned.UnixNano(), End: c.Ended.UnixNano()})
	}
	for _, l := range limits {
		referee.CheckSlots(r.T, slots, l, referee.RedisJitter)
	}
}
