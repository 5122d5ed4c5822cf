package limitstate

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/deadletter"
)

// ExcessData is the data of an excess event.
type ExcessData struct {
	Limit string     `json:"limit"`
	Units int64      `json:"units"`           // units that the vendor counts and weir does not; 0: the excess is over
	Until *time.Time `json:"until,omitempty"` // when the vendor's count begins anew
}

// quietFor returns how long a limit must show no excess until the excess counts as over. It is at least one period of
// the limit, because another program that uses the account causes an excess in each period.
func quietFor(l *bucket.Limit) time.Duration { return max(time.Minute, l.Period()) }

// excessSeen is a limit with an excess, and the time of the last look that found it.
type excessSeen struct {
	limit bucket.Limit
	last  time.Time
}

// tellExcess logs and reports that the vendor counts more of a limit than weir: once when the excess begins, and once
// when it is over. Replicas that notice the excess at about the same time send the same event id, so the event is
// stored once.
func (w *levelWatch) tellExcess(levels []bucket.Level, now time.Time) {
	for i := range levels {
		l := &levels[i]
		if l.Excess == 0 {
			continue
		}
		_, before := w.excess[l.Limit.Name]
		if w.excess == nil {
			w.excess = map[string]excessSeen{}
		}
		if w.excess[l.Limit.Name] = (excessSeen{l.Limit, now}); before {
			continue
		}
		until := l.ExcessUntil.Time()
		w.log.Warn("the vendor counts more of a limit than weir: another program may use the account, or the vendor may "+
			"allow less than is configured", "limit", l.Limit.Name, "units", l.Excess, "until", until)
		w.sendExcess(&l.Limit, ExcessData{Limit: l.Limit.Name, Units: l.Excess, Until: &until}, now)
	}
	for name, seen := range w.excess {
		if now.Sub(seen.last) >= quietFor(&seen.limit) {
			delete(w.excess, name)
			w.log.Info("the vendor counts no more of a limit than weir again", "limit", name)
			w.sendExcess(&seen.limit, ExcessData{Limit: name}, now)
		}
	}
}

// sendExcess sends the event. No units mean that the excess is over.
func (w *levelWatch) sendExcess(l *bucket.Limit, data ExcessData, now time.Time) {
	if w.letters == nil {
		return // only in tests of levels
	}
	what := "begin"
	if data.Units == 0 {
		what = "end"
	}
	id := fmt.Sprintf("excess.%s.%s.%d", w.idOf(l), what, now.Truncate(quietFor(l)).Unix())
	w.letters.Send(deadletter.Event{Type: deadletter.ExcessEvent, API: w.api, ID: id, Data: data}, func(err error) {
		if err != nil {
			w.log.Warn("could not store the event that the vendor counts more than weir", "limit", l.Name, "err", err)
		}
	})
}
