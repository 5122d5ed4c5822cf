package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// Errors of inspections.
var (
	ErrNoKey = errors.New("the key has no unfinished jobs")
)

// Bounds of one inspection.
const (
	MaxInspected = 1000 // keys, or jobs of a key
)

// Desk answers operators' requests about jobs, and carries them out. It is safe for concurrent use.
type Desk struct {
	instance string

	mu     sync.Mutex // guards what follows
	apis   []*API
	pauses map[string]map[string]schedule.Pause // by api and key
}

// New returns a desk without apis, for the replica with this name.
func New(instance string) *Desk {
	return &Desk{instance: instance, pauses: map[string]map[string]schedule.Pause{}}
}

// API is an api at the desk.
type API struct {
	*lane.Lane
	since time.Time // when this replica began to dispatch it
	// down reports whether the store of the api's limits refuses, or does not answer; called under the lane's lock
	down  func() (bool, *bucket.Refusal)
	polls func() Polls
}

// Polls says how the polls of an api's operations stand.
type Polls struct {
	Silent time.Duration // for how long no poll has said how an operation stands; 0 if the last one did
	Oldest time.Time     // when the call of the oldest operation was made; zero if there is none
}

// NewAPI returns an api that this replica begins to dispatch now.
func NewAPI(l *lane.Lane, down func() (bool, *bucket.Refusal), polls func() Polls) *API {
	return &API{Lane: l, since: time.Now().UTC(), down: down, polls: polls}
}

// Add adds an api whose worker does not run yet. Pauses that were made before take effect at once.
func (d *Desk) Add(a *API) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.pauses[a.Name] {
		a.Sched.Holds.Pause(key, p)
	}
	d.apis = append(d.apis, a)
}

// api returns an api, nil if it is not dispatched here.
func (d *Desk) api(name string) *API {
	for _, a := range d.all() {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (d *Desk) all() []*API {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.apis)
}

// APIState is one api as this replica sees it.
type APIState struct {
	API        string `json:"api"`
	Instance   string `json:"instance"`
	Partitions int    `json:"partitions"` // of the queue
	Owned      int    `json:"owned"`      // of them, by this replica
	Keys       int    `json:"keys"`       // with unfinished jobs
	Jobs       int    `json:"jobs"`       // unfinished
	InFlight   int    `json:"in_flight"`  // calls running
	Arrived    uint64 `json:"arrived"`    // jobs that came since this replica dispatches the api
	Called     uint64 `json:"called"`     // calls that have ended since then
	// Since is when this replica began to dispatch the api.
	Since  time.Time `json:"since"`
	Paused int       `json:"paused"` // pauses by operators: of keys, and of the whole api as one more
	// Pause is the pause of the whole api, if there is one.
	Pause *schedule.Pause `json:"pause,omitempty"`
}

// APIDetail is an APIState with what keeps the api, or keys of it, from being called.
type APIDetail struct {
	APIState

	Pauses   []KeyPause           `json:"pauses,omitempty"` // of keys, by name; at most as many as were asked for
	Holds    []schedule.HoldState `json:"holds,omitempty"`  // the api's first, then those of keys
	HeldKeys int                  `json:"held_keys,omitempty"`
	Uses     []limits.Use         `json:"-"` // of rates and limits of calls in flight, by this replica
	// Owns are the partitions that this replica dispatches, by their numbers.
	Owns []int `json:"owns,omitempty"`
	// Operations are the operations that the api has begun and not ended; nil if there are none.
	Operations *Operations `json:"operations,omitempty"`
	// Reuse says which answers this replica may give again; nil if every job is called.
	Reuse *ReuseState `json:"reuse,omitempty"`
	// LimiterDown says that the store of the limits does not answer, or refuses, so that calls hold.
	LimiterDown bool `json:"limiter_down,omitempty"`
	// LimiterWhy and LimiterFix say why the store refuses, and what to do; "" if it does not answer.
	LimiterWhy string `json:"limiter_why,omitempty"`
	LimiterFix string `json:"limiter_fix,omitempty"`
}

// Operations are the operations that an api has begun and not ended. weir polls them.
type Operations struct {
	UnderWay int       `json:"under_way"`
	Oldest   time.Time `json:"oldest,omitzero"` // when the call of the oldest was made
	// SilentMS is for how long no poll has said how an operation stands, in milliseconds; 0 if the last one did.
	SilentMS int64 `json:"silent_ms"`
}

// ReuseState says which answers of an api a replica may give again.
type ReuseState = lane.EqualsState

// KeyPause is a key that an operator has paused, whether it has jobs or not.
type KeyPause struct {
	Key string `json:"key"`
	schedule.Pause
}

// KeyDetail is one key's bucket with its next jobs.
type KeyDetail struct {
	schedule.KeyState
	API      string              `json:"api"`
	Stream   string              `json:"stream"`
	Instance string              `json:"instance"`
	Next     []schedule.JobState `json:"next"`
	Gets     *schedule.Share     `json:"gets,omitempty"` // its share among the keys that have jobs here
}

// State returns how many partitions of an api this replica owns, and how much is in them.
func (d *Desk) State(api string) (APIState, error) {
	w := d.api(api)
	if w == nil {
		return APIState{}, lane.ErrNoAPI
	}
	n := w.Counts()
	state := APIState{
		API: api, Instance: d.instance, Partitions: len(w.Queue.Partitions()), Owned: n.Owned,
		Keys: n.Keys, Jobs: n.Unfinished(), InFlight: n.Calling,
		Arrived: n.Arrived, Called: n.Called, Since: w.since,
	}
	pauses := d.Pauses(api)
	if p, paused := pauses[""]; paused {
		state.Pause = &p
	}
	state.Paused = len(pauses)
	return state, nil
}

// APIs returns the names of the apis that are dispatched here, sorted.
func (d *Desk) APIs() []string {
	var names []string
	for _, w := range d.all() {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return names
}

// Detail returns an api's state. It lists at most limit paused keys, and at most limit held keys.
func (d *Desk) Detail(api string, limit int) (APIDetail, error) {
	state, err := d.State(api)
	w := d.api(api)
	if err != nil || w == nil {
		return APIDetail{}, lane.ErrNoAPI
	}
	detail := APIDetail{APIState: state}
	if n := w.Counts().Polled; n > 0 {
		polls := w.polls()
		detail.Operations = &Operations{UnderWay: n, Oldest: polls.Oldest, SilentMS: polls.Silent.Milliseconds()}
	}
	for key, p := range d.Pauses(api) {
		if key != "" {
			detail.Pauses = append(detail.Pauses, KeyPause{key, p})
		}
	}
	slices.SortFunc(detail.Pauses, func(a, b KeyPause) int { return strings.Compare(a.Key, b.Key) })
	detail.Pauses = detail.Pauses[:min(len(detail.Pauses), limit)]
	w.Mu.Lock()
	defer w.Mu.Unlock()
	s := w.Sched.At(w.Now())
	detail.Holds, detail.HeldKeys = s.Holds(limit)
	detail.Reuse = w.EqualsStateLocked()
	down, refusal := w.down()
	detail.Uses, detail.LimiterDown = s.Uses(), s.LimiterDown() || down
	if refusal != nil {
		detail.LimiterWhy, detail.LimiterFix = refusal.Err.Error(), refusal.Fix
	}
	for number, p := range w.Partitions {
		if p != nil && p.Open {
			detail.Owns = append(detail.Owns, number)
		}
	}
	return detail, nil
}

// PausedEmpty returns those keys of an api that are paused and have no jobs, of the partitions owned here. It returns
// at most limit keys and at most MaxInspected, sorted by name. all is the number of all such keys.
func (d *Desk) PausedEmpty(api string, limit int) (states []schedule.KeyState, all int, err error) {
	w := d.api(api)
	if w == nil {
		return nil, 0, lane.ErrNoAPI
	}
	keys := slices.Sorted(maps.Keys(d.Pauses(api)))
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, key := range keys {
		if q := w.Sched.Queues.Find(key); key == "" || q != nil && !q.Empty() || w.Partitions[w.Queue.Partition(key).Number()] == nil {
			continue
		}
		if all++; len(states) >= min(max(limit, 1), MaxInspected) {
			continue
		}
		if state, paused := w.Sched.At(w.Now()).InspectPaused(key); paused {
			states = append(states, state)
		}
	}
	return states, all, nil
}

// KeyPlace is a bucket's place in the order of an api's buckets. The deepest bucket is first; buckets of the same depth
// are ordered by name.
type KeyPlace struct {
	Depth int    `json:"depth"`
	Key   string `json:"key"`
}

// Compare returns a negative number if p comes before o.
func (p KeyPlace) Compare(o KeyPlace) int {
	return cmp.Or(cmp.Compare(o.Depth, p.Depth), strings.Compare(p.Key, o.Key))
}

// Behind reports whether p comes after another.
func (p KeyPlace) Behind(o KeyPlace) bool { return p.Compare(o) > 0 }

// String writes a place.
func (p KeyPlace) String() string { return fmt.Sprintf("%d:%s", p.Depth, p.Key) }

// KeysWanted says which buckets to return.
type KeysWanted struct {
	Limit int       // at most MaxInspected
	After *KeyPlace // only buckets behind this place; nil for all
	Match string    // only keys that contain this
}

func (k *KeysWanted) wants(p KeyPlace) bool {
	return (k.After == nil || p.Behind(*k.After)) && strings.Contains(p.Key, k.Match)
}

// Keys returns the deepest buckets of an api, deepest first: at most limit of them, and at most MaxInspected. It looks
// at every key that has jobs. It releases the lock after every lane.LookAtOnce keys, so that calls continue. So the
// buckets are not all from the same moment.
func (d *Desk) Keys(api string, limit int) ([]schedule.KeyState, error) {
	return d.KeysPage(api, KeysWanted{Limit: limit})
}

// KeysPage is Keys with a selection.
func (d *Desk) KeysPage(api string, wanted KeysWanted) ([]schedule.KeyState, error) {
	w := d.api(api)
	if w == nil {
		return nil, lane.ErrNoAPI
	}
	wanted.Limit = min(max(wanted.Limit, 1), MaxInspected)
	states := []schedule.KeyState{}
	for _, k := range w.deepestKeys(wanted) {
		w.Mu.Lock()
		if q := w.Sched.Queues.Find(k.Key); q != nil && !q.Empty() {
			states = append(states, w.Sched.At(w.Now()).Inspect(q))
		}
		w.Mu.Unlock()
	}
	slices.SortFunc(states, func(a, b schedule.KeyState) int {
		return KeyPlace{a.Depth, a.Key}.Compare(KeyPlace{b.Depth, b.Key})
	})
	return states, nil
}

// Show returns one key's bucket and its first jobs: at most limit of them, and at most MaxInspected. It loads the
// messages of those jobs whose ids are not in memory.
func (d *Desk) Show(ctx context.Context, api, key string, limit int) (KeyDetail, error) {
	w := d.api(api)
	if w == nil {
		return KeyDetail{}, lane.ErrNoAPI
	}
	Owned := w.Queue.Partition(key)
	w.Mu.Lock()
	if w.Partitions[Owned.Number()] == nil {
		w.Mu.Unlock()
		return KeyDetail{}, lane.ErrNotOwner
	}
	q := w.Sched.Queues.Find(key)
	now := w.Now()
	if q == nil || q.Empty() {
		state, paused := w.Sched.At(now).InspectPaused(key)
		w.Mu.Unlock()
		if !paused {
			return KeyDetail{}, ErrNoKey
		}
		return KeyDetail{KeyState: state, API: api, Stream: Owned.Name(), Instance: d.instance, Next: []schedule.JobState{}}, nil
	}
	detail := KeyDetail{
		KeyState: w.Sched.At(now).Inspect(q), API: api, Stream: Owned.Name(), Instance: d.instance,
		Next: w.Sched.At(now).FirstJobs(q, min(max(limit, 1), MaxInspected)),
	}
	for i := range detail.Next {
		detail.Next[i].Job = idLocked(q, detail.Next[i].Seq)
	}
	w.Mu.Unlock()
	gets := w.shareOf(key)
	detail.Gets = &gets
	for i := range detail.Next {
		j := &detail.Next[i]
		if j.Job != "" {
			continue
		}
		entry, err := Owned.Get(ctx, j.Seq)
		if ctx.Err() != nil {
			return KeyDetail{}, fmt.Errorf("jobs of %s: %w", key, context.Cause(ctx))
		}
		if err == nil { // otherwise the job has ended meanwhile
			j.Job = entry.Header.Get(ingest.HeaderJobID)
		}
	}
	return detail, nil
}

// shareOf returns a key's share among the keys that have jobs here. It looks at all of them, and releases the lock in
// between.
func (w *API) shareOf(key string) schedule.Share {
	var demand schedule.Demand
	w.Mu.Lock()
	all := w.Sched.Queues.All()
	w.Mu.Unlock()
	w.EachLocked(all, func(q *schedule.KeyQueue) { w.Sched.At(w.Now()).AddTo(&demand, q) })
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Sched.At(w.Now()).ShareOf(key, &demand)
}

// deepestKeys returns the deepest of the wanted keys. It releases the lock after every lane.LookAtOnce queues. The map
// of queues may change meanwhile: Go's range over a map allows that. The answer may contain or lack keys that came or
// went.
func (w *API) deepestKeys(wanted KeysWanted) []KeyPlace {
	var top []KeyPlace
	seen := 0
	var last *KeyPlace // the last one of top, if top has as many as are wanted
	w.Mu.Lock()
	for q := range w.Sched.Queues.All() {
		if p := (KeyPlace{q.Depth(), q.Key}); p.Depth > 0 && (last == nil || p.Compare(*last) < 0) && wanted.wants(p) {
			top = append(top, p)
		}
		if seen++; seen%lane.LookAtOnce == 0 {
			w.Mu.Unlock()
			if top = keepDeepest(top, wanted.Limit); len(top) == wanted.Limit {
				last = new(top[wanted.Limit-1])
			}
			w.Mu.Lock()
		}
	}
	w.Mu.Unlock()
	return keepDeepest(top, wanted.Limit)
}

func keepDeepest(top []KeyPlace, limit int) []KeyPlace {
	slices.SortFunc(top, KeyPlace.Compare)
	return top[:min(limit, len(top))]
}

// idLocked returns the id of a queue's job if the job's message is in memory. Otherwise it returns "".
func idLocked(q *schedule.KeyQueue, seq uint64) string {
	if t := q.Job(seq); t == nil {
		return lane.PartitionOf(q).Cache.KeptID(seq)
	} else if j, begun := t.Of.(*lane.Job); begun && j.Message != nil {
		return j.Message.ID
	}
	return ""
}
