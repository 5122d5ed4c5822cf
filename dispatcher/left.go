package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
)

// leftOf returns what an answer says is left of each shared limit, nil if it says nothing. The returned times are by
// the store's clock. The job's slot is known by the store's clock (Grant.At) and by the lane's (At), so the difference
// converts times.
func (w *caller) leftOf(j *lane.Job, r httpcall.Response) (left []bucket.Left) {
	remainders := j.Terms.API.Remainders(r)
	for i := range remainders {
		m := &remainders[i]
		if m.Garbled {
			w.Env.Metrics.Garbled.WithLabelValues(w.Name, j.Terms.API.Rules.Shared[i].Name).Inc()
		}
		if !m.Valid {
			continue
		}
		if left == nil {
			left = make([]bucket.Left, len(remainders))
		}
		left[i] = bucket.Left{Valid: true, Units: m.Units}
		if m.Timed {
			headed := w.Now().Add(-time.Since(r.Headed)) - j.At + j.Grant.At
			left[i].Until = headed.Add(m.Wait)
			// The vendor may have counted the call as soon as it was sent.
			left[i].Least = left[i].Until.Add(-m.Early - r.Headed.Sub(r.Started))
		}
	}
	return left
}
