package verify

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
)

// replay checks the recorded calls of one api against its limits. Its memory is bounded. It holds about 500 bytes for
// each called key, the calls within one period of each limit, the calls that ended within r.horizon of each other, and
// the last mostJobs jobs.
//
// The ledger has calls in the order in which their ends were recorded, but limits count calls by their starts. So a
// call waits in a heap until no call with an earlier start can come.
type replay struct {
	api     *config.API
	since   time.Time // earlier calls are not checked
	changed time.Time // when the limits were last changed, if since is derived from that; else zero
	former  *former   // the limits before the last change; nil if there were none
	jitter  time.Duration

	keys     map[string]*keyReplay
	mostKeys int                   // the most keys; 0: no bound
	shared   []*checked            // in the order of the api's limits
	replicas map[string][]*checked // by replica, in the order of the api's limits of each replica

	account *bucket.Account // the use of quotas and budgets; nil if not all calls are read
	rules   bucket.Rules    // of the api's calls

	early    earliest
	settled  int64 // start of the last call that was checked
	newest   time.Time
	horizon  time.Duration
	jobs     jobsSeen
	repeated []SecondCall // the first mostRepeats of the calls that Unkeyed counts
	Counts
}

// Counts are a replay's counts.
type Counts struct {
	Calls    int `json:"calls"`    // that were sent
	Unsent   int `json:"unsent"`   // attempts that sent nothing
	Reused   int `json:"reused"`   // jobs that got the answers of others, without a call
	Unplaced int `json:"unplaced"` // may have been sent before a crash, in an unknown slot
	Late     int `json:"late"`     // recorded too late to be checked
	Repeats  int `json:"repeats"`  // calls of a job whose earlier call may have been processed
	Unkeyed  int `json:"unkeyed"`  // of them, those that the api could not recognise as the earlier call

	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`

	// Money covers every call that was read, also calls from before the last change of the limits. MoneyFrom is when
	// the first of them started.
	Money     ledger.Spending `json:"-"`
	MoneyFrom time.Time       `json:"-"`
}

type keyReplay struct{ rate, inFlight *checked }

// SecondCall is a call that should not have been made, unless the api processes a job once however often it is sent.
type SecondCall struct {
	Job     string    `json:"job"`
	Key     string    `json:"key"`
	Call    int       `json:"call"`
	Started time.Time `json:"started"`
	Before  string    `json:"before"` // the outcome of the earlier call
}

const (
	mostJobs    = 1 << 20     // the most jobs that are remembered
	mostRepeats = 10          // the most repeated calls that are reported one by one
	recordDelay = time.Minute // the longest time from a call's end until its record is in the ledger
)

func newReplay(a *config.API, since time.Time, most Bounds) *replay {
	r := &replay{
		api: a, since: since, rules: a.CallRules(), jitter: a.CallRules().Jitter, keys: map[string]*keyReplay{}, replicas: map[string][]*checked{}, mostKeys: most.Keys,
		horizon: longestCall(a) + recordDelay, jobs: jobsSeen{last: map[jobID]jobSeen{}, most: cmp.Or(most.Jobs, mostJobs)},
	}
	r.limit()
	return r
}

// longestCall returns the longest time that a call of the api may take. If the api has an account, it returns the
// longest time for all apis of that account.
func longestCall(a *config.API) time.Duration {
	if in := a.Rules.In; in != nil {
		return max(a.Timeout, in.Lease)
	}
	return a.Timeout
}

// limit creates the checks of the shared limits.
func (r *replay) limit() {
	r.shared = nil
	for i := range r.api.Rules.Shared {
		l := r.api.Rules.Shared[i]
		r.shared = append(r.shared, newChecked(l, r.former.limit(&l), r.rules.By(&l).Jitter))
	}
}

// take processes one record.
func (r *replay) take(c *ledger.Record) {
	if c.Outcome == ledger.Reused {
		r.forgo(c)
		return
	}
	r.charge(c)
	r.spend(c)
	if c.Polled {
		r.pushEnd(c)
		return
	}
	unplaced := c.Planned.IsZero() && c.Billed == deadletter.BilledUnknown
	if c.Started.Before(r.since) {
		if c.Sent && !unplaced && !c.Pack.Follows() && r.former.matters(c.Started) {
			r.push(c)
		}
		return
	}
	r.count(c)
	if c.Pack.Follows() {
		return // the first job of the pack stands for the call
	}
	switch {
	case !c.Sent:
		r.Unsent++
		return
	case unplaced:
		r.Unplaced++
		return
	}
	r.Calls++
	if r.First.IsZero() || c.Started.Before(r.First) {
		r.First = c.Started
	}
	if c.Started.After(r.Last) {
		r.Last = c.Started
	}
	r.push(c)
}

// isBeside reports whether a call was another api's and limits of the account counted it. That api belonged to the
// account when it made the call.
func (r *replay) isBeside(c *ledger.Record) bool {
	return c.API != r.api.Name && slices.ContainsFunc(r.rules.Shared, func(l bucket.Limit) bool {
		return l.Account != "" && slices.Contains(c.Limits, l.Name)
	})
}

// beside processes a record for which isBeside is true. The record counts only for the limits of the account.
func (r *replay) beside(c *ledger.Record) {
	if c.Outcome == ledger.Reused {
		return
	}
	r.charge(c)
	if c.Polled {
		r.pushEnd(c)
		return
	}
	unplaced := c.Planned.IsZero() && c.Billed == deadletter.BilledUnknown
	if !c.Sent || unplaced || c.Started.Before(r.since) && !r.former.matters(c.Started) {
		return
	}
	r.push(c)
}

// counts reports whether limit l counts call c.
func (r *replay) counts(l *bucket.Limit, c *ledger.Record) bool {
	return c.API == r.api.Name || l.Account != "" && slices.Contains(c.Limits, l.Name)
}

// forgo notes a job that got another job's answer and was not called. If the ledger has a later call of the job, count
// reports that call as a second call.
func (r *replay) forgo(c *ledger.Record) {
	if c.Started.Before(r.since) {
		return
	}
	r.Reused++
	r.jobs.note(jobID{c.Stream, c.Seq}, jobSeen{outcome: c.Outcome, doubtful: true})
}

// push adds a call that limits count.
func (r *replay) push(c *ledger.Record) { r.wait(r.arrival(c), c.Ended) }

// wait adds a call to the heap. It then checks the calls in the heap for which no call with an earlier start can come
// any more. ended is when the added call ended.
func (r *replay) wait(a keyedArrival, ended time.Time) {
	heap.Push(&r.early, a)
	if ended.After(r.newest) {
		r.newest = ended
	}
	r.check(r.newest.Add(-r.horizon).UnixNano())
}

// pushEnd adds what an operation took beyond what its call had been charged. The end of an operation is not a call. So
// it counts only for shared limits, from the time at which weir charged it.
func (r *replay) pushEnd(c *ledger.Record) {
	if c.Ended.Before(r.since) && !r.former.matters(c.Ended) {
		return
	}
	a := r.arrival(c)
	if a.other, a.at = true, a.end; slices.ContainsFunc(a.beyond, func(units int64) bool { return units > 0 }) {
		r.wait(a, c.Ended)
	}
}

// charge adds the use of quotas and budgets. It also adds the use from before a change of the limits.
func (r *replay) charge(c *ledger.Record) {
	if r.account == nil {
		return
	}
	for i := range r.rules.Shared {
		l := &r.rules.Shared[i]
		if units, in := c.Took(l); in && r.counts(l, c) {
			r.account.Add(r.rules, l.Name, limitstate.ChargedAt(c), units)
		}
	}
}

// used returns how much of a limit is used now, according to the ledger. It returns nil if the use is unknown, if no
// account of such a limit is kept, or if the limit is in shadow.
func (r *replay) used(l *bucket.Limit, now time.Time) *int64 {
	of := r.account.Of(l.Name)
	if of == nil || l.Shadow {
		return nil
	}
	r.account.Forget(r.rules, bucket.MicrosOf(now))
	used := of.UsedAt(bucket.MicrosOf(now))
	return &used
}

// spend adds up the cost of calls from the requested time on, as `weir spend` does. Changes of limits do not matter for
// it.
func (r *replay) spend(c *ledger.Record) {
	if r.changed.IsZero() && c.Started.Before(r.since) {
		return
	}
	r.Money.AddRecord(c)
	if r.MoneyFrom.IsZero() || c.Started.Before(r.MoneyFrom) {
		r.MoneyFrom = c.Started
	}
}

// count counts calls that should not have been made.
func (r *replay) count(c *ledger.Record) {
	if c.Inquiry != "" {
		return // the record is of an inquiry about the call
	}
	id := jobID{c.Stream, c.Seq}
	before, known := r.jobs.last[id]
	if known && before.doubtful && c.Sent {
		r.Repeats++
		if !r.sameCall(before.identity, c) {
			if r.Unkeyed++; len(r.repeated) < mostRepeats {
				r.repeated = append(r.repeated, SecondCall{c.Job, c.Key, c.Call, c.Started, before.outcome})
			}
		}
	}
	// The next call is not a second one if nothing was sent, or if the answer said "not now" or denied weir access. The
	// answer to a pack can say "not now" of one of its jobs: that job's call is not final, and was not billed.
	refused := !c.Final && c.Billed == deadletter.NotBilled
	doubtful := c.Sent && !refused && c.Outcome != ledger.PushedBack && c.Outcome != httpcall.DeniedCall
	identity := cmp.Or(c.Idempotency, before.identity)
	if before.doubtful && deadletter.SameKey(identity, before.identity) {
		identity = deadletter.EarlierKey(before.identity, identity)
	}
	r.jobs.note(id, jobSeen{outcome: c.Outcome, doubtful: doubtful || before.doubtful, identity: identity})
}

// sameCall reports whether the api recognized a call of a job as the job's earlier call. Both calls must have the same
// idempotency key, and the api must still have known that key when the later call began, according to the present
// configuration. before is the identity of the earlier call.
func (r *replay) sameCall(before string, c *ledger.Record) bool {
	knows := time.Duration(0)
	if i := r.api.Idempotency; i != nil {
		knows = i.For
	}
	return before != "" && deadletter.SameKey(before, c.Idempotency) && !deadletter.KeyForgotten(before, knows, c.Started)
}

// arrival returns a call in the form in which limits count calls.
func (r *replay) arrival(c *ledger.Record) keyedArrival {
	a := keyedArrival{key: c.Key, replica: c.Instance, other: c.API != r.api.Name, at: c.Started.UnixNano(), end: c.Ended.UnixNano()}
	for i := range r.api.Rules.Shared {
		l, units, beyond := &r.api.Rules.Shared[i], int64(0), int64(0)
		if r.counts(l, c) {
			units = c.Units(l)
			if !l.Shadow { // a shadow limit would have held later calls for the units beyond
				beyond = c.Beyond(l)
			}
		}
		a.costs, a.beyond = append(a.costs, units-beyond), append(a.beyond, beyond)
	}
	return a
}

// check checks the calls in the heap that started before a time.
func (r *replay) check(before int64) {
	for len(r.early) > 0 && r.early[0].at < before && !r.tooManyKeys() {
		a := heap.Pop(&r.early).(keyedArrival)
		if a.at < r.settled {
			if r.era(a.at) != beforeChange {
				r.Late++
			}
			continue
		}
		r.settled = a.at
		era := r.era(a.at)
		if !a.other {
			key := r.key(a.key)
			key.rate.add(bucket.Arrival{At: a.at, End: a.end, Cost: 1}, era)
			key.inFlight.add(bucket.Arrival{At: a.at, End: a.end, Cost: 1}, era)
			for _, c := range r.ofReplica(a.replica) {
				c.add(bucket.Arrival{At: a.at, End: a.end, Cost: 1}, era)
			}
		}
		for i, c := range r.shared {
			if a.costs[i]+a.beyond[i] > 0 {
				c.add(bucket.Arrival{At: a.at, End: a.end, Cost: a.costs[i], Beyond: a.beyond[i]}, era)
			}
		}
	}
}

// tooManyKeys reports whether there are more keys than mostKeys. If so, the replay proves nothing.
func (r *replay) tooManyKeys() bool { return r.mostKeys > 0 && len(r.keys) > r.mostKeys }

// within returns ErrTooMuch if there are too many keys.
func (r *replay) within() error {
	if r.tooManyKeys() {
		return fmt.Errorf("%w: %s has more than %d keys", ErrTooMuch, r.api.Name, r.mostKeys)
	}
	return nil
}

func (r *replay) key(name string) *keyReplay {
	k := r.keys[name]
	if k == nil {
		limits := r.api.Rules.For(name)
		rate, inFlight := r.former.own(name)
		k = &keyReplay{
			rate:     newChecked(bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, rate, r.jitter),
			inFlight: newChecked(bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}, inFlight, 0),
		}
		r.keys[name] = k
	}
	return k
}

// ofReplica returns the checks of one replica's own limits.
func (r *replay) ofReplica(name string) []*checked {
	all, known := r.replicas[name]
	if !known {
		for i := range r.rules.Replica {
			l := r.rules.Replica[i]
			all = append(all, newChecked(l, r.former.limit(&l), r.jitter))
		}
		r.replicas[name] = all
	}
	return all
}

// keyedArrival is a call that waits until no call with an earlier start can come.
type keyedArrival struct {
	key     string
	replica string // that made the call
	other   bool   // a call of another api of the account, or the end of an operation
	at, end int64
	costs   []int64 // what the call took of each shared limit, up to its reservation
	beyond  []int64 // what the call took beyond its reservation
}

// earliest is a heap of calls, the earliest start on top.
type earliest []keyedArrival

// Len implements heap.Interface.
func (e earliest) Len() int { return len(e) }

// Less implements heap.Interface.
func (e earliest) Less(i, j int) bool { return e[i].at < e[j].at }

// Swap implements heap.Interface.
func (e earliest) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *earliest) Push(x any) { *e = append(*e, x.(keyedArrival)) }

// Pop implements heap.Interface.
func (e *earliest) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = slices.Delete(*e, last, last+1)
	return x
}

// jobID is a job's position in a queue. A redriven job gets a new jobID.
type jobID struct {
	stream string
	seq    uint64
}

type jobSeen struct {
	outcome  string
	doubtful bool   // a call of the job may have been processed
	identity string // of the job's idempotency keys; "": no call had a key
}

// jobsSeen remembers the most recent jobs, at most most of them.
type jobsSeen struct {
	last  map[jobID]jobSeen
	order []jobID
	most  int
	next  int // index in order of the job that is forgotten next
}

func (j *jobsSeen) note(id jobID, seen jobSeen) {
	if _, known := j.last[id]; !known {
		if len(j.order) < j.most {
			j.order = append(j.order, id)
		} else {
			delete(j.last, j.order[j.next])
			j.order[j.next] = id
			j.next = (j.next + 1) % j.most
		}
	}
	j.last[id] = seen
}
