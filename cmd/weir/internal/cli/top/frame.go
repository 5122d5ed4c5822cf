package top

import (
	"context"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
)

// Bounds of a frame.
const (
	mostBuckets = 200 // the most buckets of each api
	mostStops   = 20  // the most paused and held keys of each api
)

// Frame is the state of weir at one time.
type Frame struct {
	*status.Status
	Buckets []Bucket `json:"buckets"` // the deepest buckets of each api, and paused buckets without jobs
	Rates   []Rates  `json:"rates"`   // one for each api, in the order of APIs; empty in a first frame
}

// Bucket is a key's bucket, with the fields of `weir keys`.
type Bucket struct {
	API string `json:"api"`
	schedule.KeyState
	ComePerS *float64 `json:"come_per_s,omitempty"` // jobs that arrived per second since the last frame
}

// Rates are the numbers of events per second of an API since the last frame.
type Rates struct {
	API      string  `json:"api"`
	Come     float64 `json:"come_per_s"`
	Called   float64 `json:"called_per_s"`
	Throttle float64 `json:"throttled_per_s"`
}

// Source asks the replicas for frames. Only one goroutine may use it.
type Source struct {
	c    *connect.Connection
	api  string // the only API to show; "": all APIs
	last *Frame
}

// NewSource returns a source of frames for one API, or for all if api is "".
func NewSource(c *connect.Connection, api string) *Source { return &Source{c: c, api: api} }

// spentWait bounds how long a frame waits for the answer about today's spending.
const spentWait = 2 * time.Second

// Next asks all replicas for a frame, and blocks for a few seconds at most. If no replica tells the spending in time,
// the frame has no spending.
func (s *Source) Next(ctx context.Context) (*Frame, error) {
	spent := s.spentToday(ctx) // asked before the limits, so that the limits count every call in the sum
	all, err := status.Gather(ctx, s.c, mostStops, nil)
	if err != nil {
		return nil, err
	}
	f := &Frame{Status: all, Buckets: []Bucket{}, Rates: []Rates{}}
	f.keepOnly(s.api)
	if s.api != "" && len(f.APIs) == 0 && len(f.Replicas) > 0 {
		return nil, cli.NotFound(errNoAPI(s.api))
	}
	f.AddSpent(spent)
	for _, a := range f.APIs {
		keys, err := admin.Keys(s.c, a.API, mostBuckets)
		if err != nil {
			return nil, err
		}
		for _, k := range keys.Buckets {
			f.Buckets = append(f.Buckets, Bucket{API: a.API, KeyState: k})
		}
		for _, k := range keys.Resting {
			f.Buckets = append(f.Buckets, Bucket{API: a.API, KeyState: k})
		}
	}
	f.since(s.last)
	s.last = f
	return f, nil
}

// spentToday returns the spending on each API, or nil if no replica answers in time.
func (s *Source) spentToday(ctx context.Context) *spend.Account {
	ctx, cancel := context.WithTimeout(ctx, spentWait)
	defer cancel()
	today, err := admin.Spent(ctx, s.c, admin.SpentQuestion{})
	if err != nil {
		return nil
	}
	return today
}

// keepOnly removes the data of all APIs except api; "" keeps all. The problems and warnings stay, because they say why
// weir as a whole is not healthy. If the letters were not counted by API, LettersAll remains the number of all letters.
func (f *Frame) keepOnly(api string) {
	if api == "" {
		return
	}
	var apis []*status.API
	for _, a := range f.APIs {
		if a.API == api {
			apis = append(apis, a)
		}
	}
	var letters []status.Letters
	for _, l := range f.Letters {
		if l.API == api {
			letters = append(letters, l)
		}
	}
	if len(f.Letters) > 0 {
		f.LettersAll = 0
		for _, l := range letters {
			f.LettersAll += l.Letters
		}
	}
	f.APIs, f.Letters = apis, letters
}

// since computes the rates from how much the counters have grown since the frame before.
func (f *Frame) since(before *Frame) {
	if before == nil {
		return
	}
	seconds := f.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return
	}
	counted := map[string]*status.API{}
	for _, a := range before.APIs {
		counted[a.API] = a
	}
	for _, a := range f.APIs {
		was := counted[a.API]
		if was == nil {
			was = a
		}
		f.Rates = append(f.Rates, Rates{a.API, grown(was.Accepted, a.Accepted) / seconds, grown(was.Called, a.Called) / seconds, grown(was.Throttled, a.Throttled) / seconds})
	}
	arrived := map[[2]string]uint64{}
	for i := range before.Buckets {
		arrived[[2]string{before.Buckets[i].API, before.Buckets[i].Key}] = before.Buckets[i].Arrived
	}
	for i := range f.Buckets {
		b := &f.Buckets[i]
		if was, ok := arrived[[2]string{b.API, b.Key}]; ok {
			rate := grown(was, b.Arrived) / seconds
			b.ComePerS = &rate
		}
	}
}

// grown returns how much a counter has grown; 0 if the counter was reset meanwhile.
func grown(was, is uint64) float64 { return float64(max(was, is) - was) }
