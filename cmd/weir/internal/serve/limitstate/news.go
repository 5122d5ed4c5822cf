package limitstate

import (
	"sync"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
)

// news reports steps of the clock by which an api's limits are counted. It is safe for concurrent use.
type news struct {
	mu     sync.Mutex // guards behind and until
	behind string
	until  bucket.Micros // by the calendar: when the clock has caught up
}

// ClockData is the data of a clock event.
type ClockData struct {
	MovedMS int64  `json:"moved_ms"` // by how much the clock was set; negative if it was set back
	Why     string `json:"why"`
}

// clockNoise is the smallest step of a clock that is reported.
const clockNoise = time.Second

// started reports that this machine's clock is behind the clock by which the former process counted.
func (n *news) started(o *Options, api string, by time.Duration) {
	now := o.Clock.Now() + o.Clock.Ahead()
	n.mu.Lock()
	n.behind = "the machine's clock is " + cli.Brief(by) + " behind the one that its limits were counted by until " + now.Add(by).Time().UTC().Format(time.RFC3339)
	n.until = now.Add(by)
	why := n.behind + ": what they had counted counts as of now, and quotas and budgets go on with their count"
	n.mu.Unlock()
	o.Log.Warn("limits were counted by a clock that is ahead of this machine's", "component", "limits", "api", api, "by", by.Round(time.Millisecond),
		"effect", "what they had counted counts as of now; quotas and budgets go on with their count")
	n.send(o, api, ClockData{MovedMS: -by.Milliseconds(), Why: why})
}

// set reports that the clock was set while the api's limits were counted.
func (n *news) set(o *Options, api string, by time.Duration) {
	why := "the clock was set forward by " + cli.Brief(by) + ": calendar quotas and budgets begin their next period by the new time"
	if by < 0 {
		why = "the clock was set back by " + cli.Brief(-by) + ": quotas and budgets keep their count, and no period is granted twice"
	}
	n.send(o, api, ClockData{MovedMS: by.Milliseconds(), Why: why})
}

// send sends the event. If several replicas saw the same change at the same time, the event is stored once.
func (n *news) send(o *Options, api string, data ClockData) {
	if o.Letters == nil {
		return // only in tests of limits
	}
	o.Letters.Send(deadletter.Event{Type: deadletter.ClockEvent, API: api, Data: data}, func(err error) {
		if err != nil {
			o.Log.Warn("could not store the event about the clock", "component", "limits", "api", api, "err", err)
		}
	})
}

// problem describes how far the clock is behind; it returns "" once the clock has caught up.
func (n *news) problem(now bucket.Micros) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now >= n.until {
		return ""
	}
	return n.behind
}

// ClockProblem describes by how much this machine's clock is behind the clock that counted an api's limits; "" if it is
// not.
func (b *Levels) ClockProblem(api string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.watches {
		if w.api == api && w.news != nil {
			return w.news.problem(w.clock())
		}
	}
	return ""
}

// calendarMoved reports a step of the calendar, and makes the api's worker ask the limits again.
func (n *news) calendarMoved(o *Options, api string, by time.Duration) {
	n.set(o, api, by)
	o.Caller.CalendarMoved(api)
}
