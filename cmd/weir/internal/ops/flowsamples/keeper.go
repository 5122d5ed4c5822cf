package flowsamples

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
)

// Source supplies the numbers to sample. Its methods must be safe for concurrent use.
type Source interface {
	APIs() []string
	State(api string) (desk.APIState, error)
	Keys(api string, limit int) ([]schedule.KeyState, error) // the deepest buckets
}

// Options of a Keeper. All are required.
type Options struct {
	Source    Source
	Throttled func(api string) uint64 // returns how many jobs this process has refused
	Span      time.Duration           // how long samples stay
	Every     time.Duration           // length of a part
	Keys      int                     // how many of the deepest buckets of each API are sampled
	Lines     int                     // the most keys that are kept; of more keys, those sampled longest ago are dropped
}

// Keeper holds samples of what a process dispatches. It is safe for concurrent use.
type Keeper struct {
	opts Options

	mu   sync.Mutex // guards the fields below; held for microseconds
	apis map[string]*line
	keys map[of]*line
}

// of names a key of an API.
type of struct{ api, key string }

// New returns a Keeper without samples.
func New(o Options) *Keeper {
	if o.Source == nil || o.Throttled == nil || o.Every <= 0 || o.Span < o.Every || o.Keys <= 0 || o.Lines < o.Keys {
		panic("flowsamples: New without bounds, or without what is looked at")
	}
	return &Keeper{opts: o, apis: map[string]*line{}, keys: map[of]*line{}}
}

// Run samples at the end of each part, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for rest := time.Duration(0); ; {
		now := time.Now()
		// The timer fires at the end of a part. Parts end at the same time on all replicas.
		timer := time.NewTimer(now.Add(rest).Truncate(k.opts.Every).Add(k.opts.Every).Sub(now))
		select {
		case <-timer.C:
			began := time.Now()
			k.Look(began.Truncate(k.opts.Every))
			rest = restOfLook * time.Since(began)
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// restOfLook is how long Run pauses after a look, as a multiple of the look's duration. A look reads all keys: with a
// million keys it took 250 ms, so there was about one look a minute.
const restOfLook = 300

// Look takes a sample of all APIs and of their deepest buckets.
func (k *Keeper) Look(now time.Time) {
	names := k.opts.Source.APIs()
	for _, api := range names {
		state, err := k.opts.Source.State(api)
		if err != nil {
			continue // the API was removed meanwhile
		}
		deepest, err := k.opts.Source.Keys(api, k.opts.Keys)
		if err != nil {
			continue
		}
		k.note(now, &state, deepest)
	}
	k.forget(now, names)
}

func (k *Keeper) most() int { return int(k.opts.Span / k.opts.Every) }

func (k *Keeper) note(now time.Time, a *desk.APIState, deepest []schedule.KeyState) {
	refused := k.opts.Throttled(a.API)
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.apis[a.API]
	if l == nil {
		l = &line{}
		k.apis[a.API] = l
	}
	// If true, another replica may now own a bucket that is not listed here, and the bucket may be full.
	lost := a.Owned < l.owned
	l.owned = a.Owned
	l.add(now, a.Jobs, counts{a.Arrived, a.Called, refused}, k.most())
	seen := map[string]bool{}
	for i := range deepest {
		b := &deepest[i]
		seen[b.Key] = true
		name := of{a.API, b.Key}
		l := k.keys[name]
		if l == nil {
			l = &line{}
			k.keys[name] = l
		}
		l.add(now, b.Depth, counts{came: b.Arrived, left: left(l, b)}, k.most())
	}
	for name, l := range k.keys {
		switch {
		case name.api != a.API || seen[name.key]:
		case lost:
			l.counted = false
		case len(deepest) < k.opts.Keys: // all buckets are listed, so this bucket is empty
			l.add(now, 0, counts{left: left(l, &schedule.KeyState{})}, k.most())
		}
	}
}

// left returns how many jobs have left a bucket so far: the jobs that came, without those that are still in it.
func left(l *line, b *schedule.KeyState) uint64 {
	if !l.counted {
		return 0
	}
	came := b.Arrived
	if b.Arrived >= l.last.came {
		came = b.Arrived - l.last.came
	}
	return l.last.left + uint64(max(0, int64(l.level)+int64(came)-int64(b.Depth)))
}

// forget drops APIs that this replica no longer dispatches, and keys without samples or jobs during the span. If more
// than Lines keys remain, it drops those that were sampled longest ago.
func (k *Keeper) forget(now time.Time, apis []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for api := range k.apis {
		if !slices.Contains(apis, api) {
			delete(k.apis, api)
		}
	}
	var all []of
	for name, l := range k.keys {
		if k.apis[name.api] == nil || now.Sub(l.at) > k.opts.Span || l.still() {
			delete(k.keys, name)
			continue
		}
		all = append(all, name)
	}
	if len(all) <= k.opts.Lines {
		return
	}
	slices.SortFunc(all, func(a, b of) int {
		x, y := k.keys[a], k.keys[b]
		if c := x.at.Compare(y.at); c != 0 {
			return c
		}
		return x.level - y.level
	})
	for _, name := range all[:len(all)-k.opts.Lines] {
		delete(k.keys, name)
	}
}

// still reports whether the bucket was empty in all samples.
func (l *line) still() bool {
	return l.level == 0 && !slices.ContainsFunc(l.parts, func(p Part) bool { return p.Level > 0 || p.Came > 0 || p.Left > 0 })
}

// API returns the samples of an API, oldest first. It returns nil if there are none.
func (k *Keeper) API(api string) []Part {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.apis[api]; l != nil {
		return slices.Clone(l.parts)
	}
	return nil
}

// Key returns the samples of a key's bucket, oldest first. It returns nil if there are none.
func (k *Keeper) Key(api, key string) []Part {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.keys[of{api, key}]; l != nil {
		return slices.Clone(l.parts)
	}
	return nil
}

// Add merges the samples of two replicas. Parts that end at the same time are added up.
func Add(a, b []Part) []Part {
	sum := make([]Part, 0, max(len(a), len(b)))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].At < b[0].At:
			sum, a = append(sum, a[0]), a[1:]
		case len(a) == 0 || b[0].At < a[0].At:
			sum, b = append(sum, b[0]), b[1:]
		default:
			p, q := a[0], b[0]
			sum = append(sum, Part{p.At, p.Level + q.Level, p.Came + q.Came, p.Left + q.Left, p.Refused + q.Refused})
			a, b = a[1:], b[1:]
		}
	}
	return sum
}
