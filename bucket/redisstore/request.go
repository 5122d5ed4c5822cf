package redisstore

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
)

// request is one call of the script: KEYS, and ARGV as a flat list.
type request struct {
	keys []string
	argv []any
}

func (r *request) str(s string) { r.argv = append(r.argv, s) }

func (r *request) num(n int64) { r.argv = append(r.argv, n) }

func (r *request) flag(on bool) {
	if on {
		r.num(1)
		return
	}
	r.num(0)
}

// beginLocked writes the part that all requests have: the mode, the state's identity, and the rules.
func (s *Store) beginLocked(mode string, keys int) *request {
	r := &request{keys: make([]string, 0, 3+len(s.rules.Shared)+keys), argv: make([]any, 0, 16+20*len(s.rules.Shared)+8*keys)}
	r.keys = append(r.keys, s.prefix+"state", s.own+"open", s.prefix+"open")
	r.str(mode)
	if s.now != nil {
		r.num(int64(s.now()))
	} else {
		r.str("")
	}
	s.mu.Lock()
	known := s.epoch
	if fault.Planted(fault.LossUnseen) {
		known = Fresh
	}
	r.str(known)
	r.str(s.newEpoch())
	r.num(s.seen)
	s.mu.Unlock()
	r.num(int64(s.rules.LeaseMicros()))
	r.num(s.horizon.Load())
	r.flag(s.sums)
	r.str(s.rules.KeyPaces())
	r.num(int64(s.rules.Memory()))
	r.num(jitterOf(&s.rules))
	s.membershipLocked(r)
	r.num(int64(len(s.rules.Shared)))
	for i := range s.rules.Shared {
		s.limitLocked(r, &s.rules.Shared[i])
	}
	return r
}

// membershipLocked writes the api's name, what the state does not know about the api, the account's lease and jitter,
// and what place.go needs. For an api without an account it writes an empty name and zeros.
func (s *Store) membershipLocked(r *request) {
	in := s.rules.In
	if in == nil {
		r.str("")
		for range 4 {
			r.num(0)
		}
		return
	}
	r.str(in.API)
	r.flag(s.news.Load() == uncalled)
	r.flag(s.news.Load() == stranger)
	of := bucket.Rules{Lease: in.Lease, Jitter: in.Jitter}
	r.num(int64(of.LeaseMicros()))
	r.num(jitterOf(&of))
	r.num(s.version.Load())
	r.str(s.sign)
	r.num(int64(len(in.APIs)))
	for _, api := range in.APIs {
		r.str(api)
	}
}

// fieldOf returns the prefix of the names of a limit's fields in the state.
func (s *Store) fieldOf(l *bucket.Limit) string {
	if l.Account == "" && s.rules.In != nil {
		return s.rules.In.API + "|" + l.Name
	}
	return l.Name
}

// jitterOf returns the jitter in microseconds, rounded up.
func jitterOf(r *bucket.Rules) int64 { return int64(bucket.Micros(0).Add(r.Jitter + 999)) }

// limitLocked writes one shared limit. For a calendar quota it includes the bounds of the periods around the present,
// because Redis knows no time zones.
func (s *Store) limitLocked(r *request, l *bucket.Limit) {
	rules := s.rules.By(l)
	r.keys = append(r.keys, s.prefix+"log:"+s.fieldOf(l))
	t := bucket.Interval{P: 1, Q: 1}
	var kind, sign string
	var burst, per, grain int64
	var bounds []bucket.Micros
	inWindow := func(quota *bucket.Quota) {
		switch quota.Window {
		case bucket.Sliding:
			life, g := rules.SlidingBounds(*quota)
			kind, per, grain = "s", int64(life), int64(g)
		case bucket.Fixed:
			start, end := quota.Period(0)
			kind, per = "f", int64(end-start)
			sign = fmt.Sprint("fixed/", per)
		case bucket.Calendar:
			kind, bounds, per = "q", s.bounds(*quota), int64(quota.Length()/time.Microsecond)
			sign = fmt.Sprint(quota.Unit, "/", quota.Zone)
		}
	}
	switch l.Kind() {
	case bucket.KindRate:
		kind, t, burst, per = "r", rules.Interval(*l.Rate), rules.Burst(*l.Rate), int64(rules.Window(*l.Rate))
	case bucket.KindQuota:
		inWindow(l.Quota)
	case bucket.KindInFlight:
		kind, burst = "i", rules.Lowered(l.InFlight)
	case bucket.KindBudget:
		inWindow(&l.Budget.Quota)
	}
	r.str(s.fieldOf(l))
	r.flag(l.Account != "")
	r.str(kind)
	r.flag(l.Shadow)
	r.num(s.rules.Capacity(*l))
	r.num(burst)
	r.num(jitterOf(&rules))
	r.num(per)
	r.num(grain)
	r.num(leftPeriod(l))
	r.str(l.LeftSign())
	_, slack := s.rules.Spare(*l)
	r.num(slack)
	r.str(sign)
	r.num(t.P)
	r.num(t.Q)
	r.num(int64(len(bounds)))
	for _, b := range bounds {
		r.num(int64(b))
	}
}

// leftPeriod returns a limit's period in microseconds. It is 0 if no answer says what is left of the limit.
func leftPeriod(l *bucket.Limit) int64 {
	if !l.ReadsLeft() {
		return 0
	}
	return int64(bucket.Micros(0).Add(l.Period() + 999))
}

// bounds returns the beginnings of four periods, from the one before the present one on, and the end of the last one.
func (s *Store) bounds(q bucket.Quota) []bucket.Micros {
	start, end := q.Period(s.present())
	before, _ := q.Period(start - 1)
	_, next := q.Period(end)
	_, last := q.Period(next)
	return []bucket.Micros{before, start, end, next, last}
}

// line writes the Line of a round, or "" if its asks have none.
func (r *request) line(l *bucket.Line) {
	if l == nil {
		r.str("")
		return
	}
	r.str(short(l.Replica))
	r.num(int64(l.More))
	r.flag(l.Held)
	r.num(int64(l.Keys))
	for _, p := range bucket.Priorities {
		r.num(l.Weights.Of(p))
	}
	r.str(l.API)
	r.num(max(1, l.Weight))
	r.num(int64(len(l.Tenants)))
	for i := range l.Tenants {
		r.str(marks[l.Tenants[i].Priority] + short(l.Tenants[i].Tenant))
		r.num(int64(l.Tenants[i].Keys))
	}
}

// marks are the prefixes that tell the priority of a tenant's entry in the script.
var marks = map[bucket.Priority]string{bucket.High: "h:", bucket.Normal: "", bucket.Low: "l:"}

// short returns a hash of a name as a short word. Two different names have the same word once in billions of pairs.
func short(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// askLocked writes one ask, which must have passed Validate.
func (s *Store) askLocked(r *request, a *bucket.Ask) {
	r.keys = append(r.keys, s.own+"key:"+a.Key)
	t := s.rules.Interval(a.Limits.Rate)
	r.num(t.P)
	r.num(t.Q)
	r.num(s.rules.Burst(a.Limits.Rate))
	r.num(int64(s.rules.Window(a.Limits.Rate)))
	r.num(int64(bucket.Micros(0).Add(a.Horizon + 999)))
	r.num(int64(a.Want))
	r.num(int64(a.Floor))
	r.num(tenantOf(a))
	r.num(1 + int64(a.Priority-bucket.High))
	r.num(int64(max(1, a.Service)))
	for i := range s.rules.Shared {
		if a.Costs == nil {
			r.num(1)
			continue
		}
		r.num(a.Costs[i])
	}
}

// tenantOf returns the index of the ask's tenant and priority in its Line, counted from 1; 0 if they are not there.
func tenantOf(a *bucket.Ask) int64 {
	if a.Line == nil {
		return 0
	}
	return 1 + int64(slices.IndexFunc(a.Line.Tenants, func(t bucket.Waiting) bool { return t.Tenant == a.Tenant && t.Priority == a.Priority }))
}

// useLocked writes the end of one grant to the request. It writes -1 as the cost at a limit that was not in the grant's
// rules, and -1 for each figure that the api's answer does not give.
func (s *Store) useLocked(r *request, u *bucket.Use) {
	r.keys = append(r.keys, s.own+"key:"+u.Key)
	r.num(u.Grant.Serial)
	r.num(u.Grant.Before)
	r.num(int64(u.Grant.At))
	r.flag(u.Returned)
	r.num(int64(bucket.Micros(0).Add(u.Hold + 999)))
	for i, l := range s.rules.Shared {
		cost, actual := int64(-1), int64(-1)
		left, count := bucket.Left{Units: -1}, bucket.Count{}
		if at, ok := s.orders.Place(u, l.Name, i); ok {
			cost = 1
			if u.Costs != nil {
				cost = u.Costs[at]
			}
			if at < len(u.Actual) {
				actual = min(1<<52, max(0, u.Actual[at]))
			}
			if at < len(u.Left) && at < len(u.Grant.Counts) && u.Left[at].Valid {
				left, count = u.Left[at], u.Grant.Counts[at]
				spare, _ := s.rules.Spare(l)
				left.Units = max(0, left.Units-spare)
			}
		}
		r.num(cost)
		r.num(actual)
		if l.ReadsLeft() {
			r.num(left.Units)
			r.num(int64(left.Until))
			r.num(int64(left.Least))
			r.num(count.Taken)
			r.num(count.Freed)
		}
	}
}

// reader reads the script's answer.
type reader struct {
	fields []any
	now    bucket.Micros // the clock of the slots
	behind bucket.Micros // by how much the server's time, which calendars use, is behind now
	err    error
}

func (r *reader) str() string {
	if r.err != nil {
		return ""
	}
	if len(r.fields) == 0 {
		r.err = fmt.Errorf("the script's answer is too short")
		return ""
	}
	v, ok := r.fields[0].(string)
	if !ok {
		r.err = fmt.Errorf("the script answered %T where a string should be", r.fields[0])
	}
	r.fields = r.fields[1:]
	return v
}

func (r *reader) num() int64 {
	s := r.str()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("the script answered %q where a number should be", s)
	}
	return n
}

// Values of never in the script's answer, beside 0 and 1 for Wait.Never. uncertain is a wait for a limit that counts as
// full because its use is unknown. The caller asks again after uncertainPoll, and buries no job.
const (
	uncertain     = 2
	edge          = 3 // the edge of a period, or another replica's turn: the budget is not spent
	uncertainPoll = time.Second
)

// answerLocked reads the answer to one ask.
func (s *Store) answerLocked(r *reader) (a bucket.Answer) {
	a.Now = r.now
	n := r.num()
	if n > bucket.MaxWant {
		r.err = fmt.Errorf("the script granted %d slots", n)
	}
	for i := int64(0); i < n && r.err == nil; i++ {
		if a.Grants == nil {
			a.Grants = make([]bucket.Grant, 0, n)
		}
		g := bucket.Grant{At: bucket.Micros(r.num()), TAT: bucket.Micros(r.num()), Serial: r.num(), Before: r.num()}
		for i := range s.rules.Shared {
			if !s.rules.Shared[i].ReadsLeft() {
				continue
			}
			if g.Counts == nil {
				g.Counts = make([]bucket.Count, len(s.rules.Shared))
			}
			g.Counts[i] = bucket.Count{Taken: r.num(), Freed: r.num()}
		}
		a.Grants = append(a.Grants, g)
	}
	binding, until, never, excess := r.num(), r.num(), r.num(), r.num()
	a.Elsewhere, a.Whole, a.Part = int(r.num()), int(r.num()), int(r.num())
	switch {
	case r.err != nil || binding < 0:
	case binding == 0:
		a.Wait = bucket.Wait{Limit: bucket.OwnRate, Until: bucket.Micros(until)}
	case int(binding) > len(s.rules.Shared):
		r.err = fmt.Errorf("the script names limit %d of %d", binding, len(s.rules.Shared))
	default:
		l := s.rules.Shared[binding-1]
		a.Wait = bucket.Wait{Limit: l.Name, Until: bucket.Micros(until), Never: never == 1, Excess: excess}
		if never == uncertain {
			a.Wait.Until = min(a.Wait.Until, a.Now.Add(uncertainPoll))
		} else if l.Budget != nil && never != edge {
			a.Wait.Exhausted = l.Budget.OnExhausted
		}
	}
	return a
}
