package sites

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weir/bucket"
)

// world is a vendor's account with some sites and movers, in virtual time. Each site has a clock of its own, counts by a
// bucket.Memory, and follows a new share some time after it was stored. Links between movers and sites are cut, answers
// are lost or late, and movers die at any step. The seed alone decides what happens.
type world struct {
	rnd     *rand.Rand
	now     int64 // true time, the vendor's clock, in microseconds
	next    events
	order   int64 // numbers events, so that those of one time keep their order
	until   int64 // sites begin no call after it
	account bucket.Rules
	whole   []bucket.Limit
	sites   []*site
	plant   mistake
	lasts   time.Duration               // the longest call
	came    map[string][]bucket.Arrival // by limit
	calls   int
	moves   int            // that ended well
	failed  map[string]int // by why they did not
	raised  int
}

const (
	account   = "acme"
	second    = int64(1_000_000)
	jitter    = 20 * time.Millisecond
	ahead     = time.Second // the farthest slot
	lease     = 40 * time.Second
	following = 700 * time.Millisecond
)

type event struct {
	at, order int64
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (w *world) at(t int64, do func()) {
	w.order++
	heap.Push(&w.next, event{max(t, w.now), w.order, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+d.Microseconds(), do) }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d) + 1)) }

// site is one site: its stored share, and the process that follows it and calls.
type site struct {
	w        *world
	name     string
	rate     float64 // of its clock
	offset   int64
	share    int64 // stored
	revision uint64
	claimed  uint64 // the revision of the last claim
	followed uint64 // the revision that its process has in force
	member   *bucket.Memory
	pool     *bucket.Memory
	cut      map[*mover]bool // links that are down
	busy     bool
	named    int
}

// clock returns the time by the site's clock. Its calendar is as wrong as its clock.
func (s *site) clock() bucket.Micros {
	return bucket.Micros(float64(s.w.now)*s.rate) + bucket.Micros(s.offset)
}

// really returns the true time at which the site's clock shows t.
func (s *site) really(t bucket.Micros) int64 { return int64(float64(int64(t)-s.offset) / s.rate) }

// limits returns limits of the kinds that are not so small that a share of a tenth leaves nothing.
func (w *world) limits() (limits []bucket.Limit) {
	per := time.Duration(1+w.rnd.IntN(6)) * time.Second
	count := int64(20 + w.rnd.IntN(60))
	all := []bucket.Limit{
		{Name: "window", Rate: &bucket.Rate{Count: count, Per: per, Burst: 1 + w.rnd.Int64N(count*2/3), Counts: bucket.ByWindow}},
		{Name: "tokens", Rate: &bucket.Rate{Count: 5 + count/4, Per: time.Second, Burst: 20 + w.rnd.Int64N(60), Counts: bucket.ByTokens}},
		{Name: "sliding", Quota: &bucket.Quota{Count: count, Window: bucket.Sliding, Per: per}},
		{Name: "fixed", Quota: &bucket.Quota{Count: 2 * count, Window: bucket.Fixed, Per: 2 * per}},
		{Name: "running", InFlight: 10 + w.rnd.Int64N(10)},
	}
	w.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	limits = all[:1+w.rnd.IntN(2)]
	if w.plant == ignoresRunning { // looked for where it shows
		limits = slices.DeleteFunc(all, func(l bucket.Limit) bool { return l.InFlight == 0 })
	}
	// Without such a limit, only time would bound the calls.
	if !slices.ContainsFunc(limits, func(l bucket.Limit) bool { return l.InFlight == 0 }) {
		limits = append(limits, bucket.Limit{Name: "pace", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 20}})
	}
	for i := range limits {
		limits[i].Name, limits[i].Account = account+"/"+limits[i].Name, account
	}
	return limits
}

// rules returns a site's rules with a share of the account's limits.
func (w *world) rules(percent int64) (bucket.Rules, error) {
	rules := w.account
	rules.Shared = make([]bucket.Limit, len(w.whole))
	for i, l := range w.whole {
		part, err := l.Part(percent)
		if err != nil {
			return rules, err
		}
		rules.Shared[i] = part
	}
	return rules, rules.Validate()
}

func newWorld(seed uint64, plant mistake) *world {
	w := &world{rnd: rand.New(rand.NewPCG(seed, 63)), now: 1_800_000_000 * second, plant: plant, came: map[string][]bucket.Arrival{}, failed: map[string]int{}}
	w.whole = w.limits()
	w.account = bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}, InFlight: 1000}, Jitter: jitter, Lease: lease,
		In: &bucket.Membership{Account: account, API: "api", APIs: []string{"api"}, Jitter: jitter, Lease: lease},
	}
	w.lasts = []time.Duration{400 * time.Millisecond, 400 * time.Millisecond, 10 * time.Second, lease - 2*time.Second}[w.rnd.IntN(4)]
	if plant == ignoresRunning {
		w.lasts = lease - 2*time.Second
	}
	n := 2 + w.rnd.IntN(4)
	left := int64(bucket.WholeShare)
	for i := range n {
		share := min(left-10*int64(n-i-1), 10+w.rnd.Int64N(60))
		left -= share
		s := &site{
			w: w, name: string(rune('a' + i)), share: share, revision: 1, followed: 1, cut: map[*mover]bool{},
			rate: 1 + (w.rnd.Float64()-0.5)*2e-4, busy: w.rnd.IntN(4) > 0,
		}
		// The clock is right within a third of the jitter now, and stays so for the minutes of a run.
		s.offset = int64(float64(w.now)*(1-s.rate)) + w.rnd.Int64N(jitter.Microseconds()/3*2) - jitter.Microseconds()/3
		s.open()
		w.sites = append(w.sites, s)
	}
	return w
}

// open begins to count.
func (s *site) open() {
	rules, err := s.w.rules(s.share)
	if err != nil {
		panic(err)
	}
	if s.pool, err = bucket.NewMemory(rules.Pool(), s.clock); err != nil {
		panic(err)
	}
	pools := &bucket.Pools{}
	pools.Add(account, s.pool)
	if s.member, err = bucket.NewMember(rules, pools, s.clock); err != nil {
		panic(err)
	}
	s.w.after(s.w.upTo(time.Second), s.call)
}

// call asks for slots, and asks again until the run ends. Phases in which the site has nothing to do come between.
func (s *site) call() {
	w := s.w
	if w.now >= w.until {
		return
	}
	if s.busy && w.rnd.IntN(60) == 0 || !s.busy && w.rnd.IntN(12) == 0 {
		s.busy = !s.busy
	}
	again := w.upTo(200 * time.Millisecond)
	if s.busy {
		s.named++
		ask := bucket.Ask{
			Key: fmt.Sprint(s.named % 8), Limits: w.account.Key, Want: 1 + w.rnd.IntN(4), Horizon: w.upTo(ahead),
		}
		answers, err := s.member.Reserve(context.Background(), []bucket.Ask{ask})
		if err != nil {
			panic(err)
		}
		for _, g := range answers[0].Grants {
			s.begin(ask.Key, g)
		}
		if wait := answers[0].Wait; wait.Until > answers[0].Now {
			again = min(again, answers[0].Now.Until(wait.Until))
		} else {
			again = w.upTo(50 * time.Millisecond)
		}
	}
	w.after(again+time.Millisecond, s.call)
}

// begin makes a call in its slot. It arrives late by at most two thirds of the jitter.
func (s *site) begin(key string, g bucket.Grant) {
	w := s.w
	arrives := max(w.now, s.really(g.At)+w.upTo(jitter*2/3).Microseconds())
	lasts := w.lasts/2 + w.upTo(w.lasts/2)
	w.calls++
	for _, l := range w.whole {
		w.came[l.Name] = append(w.came[l.Name], bucket.Arrival{At: arrives * 1000, End: arrives*1000 + lasts.Nanoseconds(), Cost: 1})
	}
	w.at(arrives+lasts.Microseconds(), func() {
		_ = s.member.Settle(context.Background(), []bucket.Use{{Key: key, Grant: g}})
	})
}

// follow puts the stored share in force in the site's process.
func (s *site) follow() {
	if s.followed == s.revision {
		return
	}
	rules, err := s.w.rules(s.share)
	if s.w.plant == roundsUp {
		rules = s.w.roundedUp(s.share)
	}
	if err == nil {
		err = s.member.Apply(rules)
	}
	if err != nil {
		panic(err)
	}
	s.followed = s.revision
}

// over reports whether calls of the site may exceed its share in a window that still sees calls.
func (s *site) over() bool {
	rules, _ := s.w.rules(s.share)
	running := s.pool.Running()
	if s.w.plant == ignoresRunning {
		running = 0
	}
	return len(rules.Over(s.pool.Levels(), running, s.clock())) > 0
}

// breach returns the first limit that some window exceeded, "" if there is none.
func (w *world) breach() string {
	for _, l := range w.whole {
		of := l
		if l.Rate != nil && l.Rate.Counted() == bucket.ByWindow { // several sites have several bursts
			of.Rate, of.Quota = nil, &bucket.Quota{Count: l.Rate.Count, Window: bucket.Sliding, Per: l.Rate.Per}
		}
		came := w.came[l.Name]
		slices.SortStableFunc(came, func(a, b bucket.Arrival) int { return int(a.At - b.At) })
		check := bucket.NewChecking(bucket.Expectation{Limit: of})
		for _, a := range came {
			check.Add(a)
		}
		if v := check.Verdict(); v.Outcome != bucket.Pass {
			return fmt.Sprintf("%s: %d of %d, burst %.2f: %+v", l.Name, v.Worst, v.Allowed, v.Burst, describe(l))
		}
	}
	return ""
}

func describe(l bucket.Limit) string {
	switch l.Kind() {
	case bucket.KindRate:
		return fmt.Sprintf("%+v", *l.Rate)
	case bucket.KindQuota:
		return fmt.Sprintf("%+v", *l.Quota)
	case bucket.KindInFlight, bucket.KindBudget:
	}
	return fmt.Sprint(l.InFlight)
}

// run lets time pass.
func (w *world) run(lasts time.Duration) {
	w.until = w.now + lasts.Microseconds()
	for len(w.next) > 0 {
		e := heap.Pop(&w.next).(event)
		w.now = e.at
		e.do()
	}
}

var (
	errDied   = errors.New("the mover died")
	errNoLink = errors.New("no answer")
)

// why returns the kind of an error.
func why(err error) string {
	for _, kind := range []error{errDied, errNoLink, ErrOvertaken} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "refused"
}

// move begins a move, and sometimes another one.
func (w *world) move() {
	w.moveTo(w.shares())
	if w.rnd.IntN(8) == 0 || w.plant == claimsAfterwards {
		w.after(w.upTo(4*time.Second), func() { w.moveTo(w.shares()) })
	}
}

// shares returns shares that an operator wants. A site that is missing keeps its share.
func (w *world) shares() map[string]int64 {
	if w.rnd.IntN(3) == 0 {
		return w.nearly()
	}
	target, left := map[string]int64{}, int64(bucket.WholeShare)
	for i, s := range w.sites {
		share := min(left-10*int64(len(w.sites)-i-1), 10+w.rnd.Int64N(70))
		left -= share
		if w.rnd.IntN(12) > 0 {
			target[s.name] = share
		}
	}
	if w.rnd.IntN(12) == 0 { // a slip of the operator's
		target[w.sites[0].name] = min(90, target[w.sites[0].name]+30)
	}
	return target
}

// nearly returns the shares in force, except that one site gets a share of what the others leave.
func (w *world) nearly() map[string]int64 {
	target := map[string]int64{}
	for _, s := range w.sites {
		target[s.name] = s.share
	}
	of := w.sites[w.rnd.IntN(len(w.sites))]
	if left := bucket.WholeShare - w.sum() + of.share; left >= 10 && w.rnd.IntN(3) > 0 {
		target[of.name] = 10 + w.rnd.Int64N(left-9)
	}
	return target
}

// moveTo begins a move to these shares.
func (w *world) moveTo(target map[string]int64) {
	m, to := &mover{w: w, slow: w.rnd.IntN(3) == 0, claims: map[*site]uint64{}}, map[string]Site{}
	for _, s := range w.sites {
		to[s.name] = link{m, s}
	}
	move := Move{Sites: to, Target: target, Tell: func(p Progress) {
		if p.Step == Raised {
			w.raised++
		}
	}}
	var next func() (struct{}, bool)
	next, stop := iter.Pull(iter.Seq[struct{}](func(yield func(struct{}) bool) {
		m.yield = yield
		if _, err := move.inOrder(context.Background(), w.plant.order()); err != nil {
			w.failed[why(err)]++
			if w.now < w.until && w.rnd.IntN(2) == 0 { // the operator goes on
				w.after(w.upTo(8*time.Second), func() { w.moveTo(target) })
			}
		} else {
			w.moves++
		}
		m.dead = true
	}))
	m.resume, m.end = next, stop
	if w.rnd.IntN(5) == 0 { // it dies
		w.after(w.upTo(15*time.Second), func() {
			if !m.dead {
				m.dead = true
				m.end()
			}
		})
	}
	w.cuts(m)
	m.goOn()
}

// cuts cuts links of a mover for a while, at any time.
func (w *world) cuts(m *mover) {
	for _, s := range w.sites {
		if w.rnd.IntN(8) > 0 {
			continue
		}
		w.after(w.upTo(12*time.Second), func() {
			s.cut[m] = true
			w.after(w.upTo(6*time.Second), func() { delete(s.cut, m) })
		})
	}
}

// names returns the shares of all sites as a text.
func (w *world) names() string {
	var all []string
	for _, s := range w.sites {
		all = append(all, fmt.Sprintf("%s=%d%%", s.name, s.share))
	}
	return strings.Join(all, " ")
}

// sum returns the sum of the stored shares.
func (w *world) sum() int64 {
	all := map[string]int64{}
	for _, s := range w.sites {
		all[s.name] = s.share
	}
	return Shares(maps.Clone(all))
}
