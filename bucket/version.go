package bucket

import (
	"fmt"
	"hash/fnv"
	"strconv"
)

// AccountSign returns a hash of the limits of the api's account and of the apis that share them. Rules that differ in
// any of these have another hash. Without an account it returns "".
func (r Rules) AccountSign() string {
	if r.In == nil {
		return ""
	}
	h := fnv.New64a()
	// A hash takes every write.
	_, _ = fmt.Fprintf(h, "%q %q %d %d %d", r.In.Account, r.In.APIs, r.In.Headroom, r.In.Jitter, r.In.Lease)
	for i := range r.Shared {
		l := &r.Shared[i]
		if l.Account == "" {
			continue
		}
		_, _ = fmt.Fprintf(h, "\n%q %d %t %+v %+v %+v", l.Name, l.InFlight, l.Shadow, l.Cost, l.Left, l.LeftUntil)
		if l.Rate != nil {
			_, _ = fmt.Fprintf(h, " %+v", *l.Rate)
		}
		quota := l.Quota
		if l.Budget != nil {
			quota = &l.Budget.Quota
			_, _ = fmt.Fprintf(h, " %q", l.Budget.OnExhausted)
		}
		if quota != nil {
			_, _ = fmt.Fprintf(h, " %d %q %d %q %v", quota.Count, quota.Window, quota.Per, quota.Unit, quota.Zone)
		}
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
