package storetest

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"

	"pgregory.net/rapid"
)

// vendors drives the store with calls to a vendor that says what is left. Other programs may use the same account.
// Answers come late and in any order.
func vendors(t *testing.T, open Open, scenes int) {
	played := 0
	rapid.Check(t, func(rt *rapid.T) {
		if played++; played > scenes && !rt.Failed() {
			return
		}
		p := anyAccount(rt)
		alone := p
		alone.others = 0
		without := alone
		without.limit.Left, without.limit.LeftUntil = unread.Left, unread.LeftUntil
		said, unsaid := playAccount(t, open, alone), playAccount(t, open, without)
		if !slices.Equal(said.slots, unsaid.slots) {
			rt.Fatalf("answers changed the slots of the only program: %v, want %v\n%+v", said.slots, unsaid.slots, p)
		}
		if p.slides() || p.tokens() || p.cost > 1 {
			return // units come back all the time, and other programs may take them first
		}
		p.blur = 0
		if s := playAccount(t, open, p); s.refused > s.underWay {
			rt.Fatalf("the vendor refused %d calls of a period, and no more than %d were under way\n%+v", s.refused, s.underWay, p)
		}
	})
}

var unread bucket.Limit

// account is a vendor's account and the programs that use it.
type account struct {
	limit  bucket.Limit
	count  int64         // the units that the vendor allows
	per    bucket.Micros // the vendor's period
	others int64         // units that other programs take at the beginning of each period, in percent
	timed  bool          // answers say until when
	blur   bucket.Micros // by how much later than the truth that time may be
	flight bucket.Micros // how long a call takes at most
	calls  int           // keys of weir that always have a job
	eager  bool          // a key's next call does not wait for the answer to its last
	cost   int64         // the most that a call reserves; if it is above 1, a call may give back all but one when it ends
	seed   uint64
}

func anyAccount(t *rapid.T) account {
	p := account{
		count:  rapid.Int64Range(10, 60).Draw(t, "count"),
		per:    bucket.Micros(rapid.SampledFrom([]int64{20, 60}).Draw(t, "seconds")) * second,
		others: rapid.Int64Range(0, 100).Draw(t, "others"), timed: rapid.Bool().Draw(t, "timed"),
		flight: bucket.Micros(rapid.SampledFrom([]int64{1, 200_000, 3_000_000}).Draw(t, "flight")),
		calls:  rapid.IntRange(1, 8).Draw(t, "calls"), eager: rapid.IntRange(0, 3).Draw(t, "eager") == 0,
		blur: bucket.Micros(rapid.SampledFrom([]int64{0, 0, 2_000_000}).Draw(t, "blur")),
		cost: rapid.SampledFrom([]int64{1, 1, 5}).Draw(t, "cost"), seed: rapid.Uint64().Draw(t, "seed"),
	}
	per := time.Duration(p.per) * time.Microsecond
	switch rapid.SampledFrom([]string{"rate", "tokens", "fixed", "sliding"}).Draw(t, "kind") {
	case "rate":
		p.limit = sharedRate("account", p.count, per, rapid.Int64Range(1, p.count/2).Draw(t, "burst"))
		p.cost = min(p.cost, p.limit.Rate.Burst)
		p.timed = true // without a time, an answer says only what may start at once
	case "tokens":
		r := bucket.Rate{Count: p.count, Per: per, Burst: p.count, Counts: bucket.ByTokens}
		p.limit = bucket.Limit{Name: "account", Rate: &r}
	case "fixed":
		p.limit = quota("account", bucket.Quota{Count: p.count, Window: bucket.Fixed, Per: per})
	default:
		p.limit = quota("account", bucket.Quota{Count: p.count, Window: bucket.Sliding, Per: per})
	}
	p.limit = reading(p.limit)
	if p.cost > 1 {
		p.limit.Cost = p.limit.Cost.SettledBy(ingest.Source{Header: "X-Cost"})
	}
	return p
}

// session is an account while it is used.
type session struct {
	account
	t       testing.TB
	store   Store
	clock   Clock
	rng     *rand.Rand
	events  events
	period  bucket.Micros   // when the present period began, if the vendor has periods
	used    int64           // in the period, or the missing tokens of a token bucket
	filled  bucket.Micros   // when used was last computed, of a token bucket
	counted []bucket.Micros // when a vendor with a sliding window counted calls
	open    int
	inOne   int // calls refused in the present period
	most    int // most calls under way at once in the present period

	slots    []bucket.Micros
	refused  int // in the period in which the vendor refused the most beyond the calls under way
	underWay int
}

// playAccount lets weir call for three periods. The vendor counts a call some time after it was granted, and answers it
// some time after that.
func playAccount(t testing.TB, open Open, p account) *session {
	s := &session{account: p, t: t, rng: rand.New(rand.NewPCG(p.seed, 3)), period: -1}
	s.clock.now = Start
	rules := only(p.limit)
	rules.Jitter = time.Duration(p.flight) * time.Microsecond
	s.store = open(t, rules, &s.clock)
	for k := range p.calls {
		s.at(Start, func() { s.ask(k) })
	}
	end := Start + 3*p.per
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		if e.at > end {
			break
		}
		s.clock.now = max(s.clock.now, e.at)
		s.roll()
		e.do()
	}
	s.closePeriod()
	return s
}

func (s *session) at(when bucket.Micros, do func()) { heap.Push(&s.events, event{when, do}) }

func (s *session) ask(k int) {
	cost := 1 + s.rng.Int64N(s.cost)
	ask := bucket.Ask{Key: fmt.Sprint("k", k), Limits: fast, Want: 1, Costs: []int64{cost}}
	got, err := s.store.Reserve(context.Background(), []bucket.Ask{ask})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range got[0].Grants {
		s.slots = append(s.slots, g.At)
		s.open++
		s.most = max(s.most, s.open)
		sent, back := s.rng.Int64N(int64(s.flight)), s.rng.Int64N(int64(s.flight))
		s.at(g.At+bucket.Micros(sent), func() {
			use, giveBack := s.arrive(g, cost)
			s.at(s.clock.now+bucket.Micros(back), func() {
				s.open--
				giveBack()
				if err := s.store.Settle(context.Background(), []bucket.Use{use}); err != nil {
					s.t.Fatal(err)
				}
				if !s.eager {
					s.ask(k)
				}
			})
		})
		if s.eager {
			s.at(s.clock.now+1, func() { s.ask(k) })
		}
	}
	if w := got[0].Wait; w.Until != 0 {
		// An answer may end an excess, so the key asks again before the wait is over.
		s.at(max(s.clock.now+1, min(w.Until, s.clock.now+s.per/10)), func() { s.ask(k) })
	}
}

// arrive counts a call as the vendor does, and returns what its answer says. The vendor counts what the call has reserved
// until giveBack.
func (s *session) arrive(g bucket.Grant, cost int64) (use bucket.Use, giveBack func()) {
	s.roll()
	took, arrived, period := 1+s.rng.Int64N(cost), s.clock.now, s.period
	giveBack = func() {}
	switch enough := s.left() >= cost; {
	case enough && s.slides():
		s.counted = append(s.counted, slices.Repeat([]bucket.Micros{arrived}, int(cost))...)
		giveBack = func() {
			for n := cost; n > took; n-- {
				if i := slices.Index(s.counted, arrived); i >= 0 {
					s.counted = slices.Delete(s.counted, i, i+1)
				}
			}
		}
	case enough:
		s.used += cost * s.unit()
		giveBack = func() {
			if s.roll(); s.period == period {
				s.used = max(0, s.used-(cost-took)*s.unit())
			}
		}
	default:
		s.inOne++
	}
	left := bucket.Left{Valid: true, Units: s.left()}
	if s.timed {
		left.Until = s.period + s.per
		switch {
		case s.slides() && len(s.counted) > 0:
			left.Until = s.counted[0] + s.per
		case s.tokens():
			left.Until = s.clock.now + bucket.Micros(s.used)
		}
		left.Until = max(left.Until, s.clock.now+1) + bucket.Micros(s.rng.Int64N(int64(s.blur)+1))
		left.Least = left.Until - s.blur
	}
	use = bucket.Use{Key: "k", Grant: g, Costs: []int64{cost}, Left: []bucket.Left{left}}
	if s.cost > 1 {
		use.Actual = []int64{took}
	}
	return use, giveBack
}

func (p *account) slides() bool {
	return p.limit.Quota != nil && p.limit.Quota.Window == bucket.Sliding
}

func (p *account) tokens() bool { return p.limit.Rate != nil && p.limit.Rate.Counts == bucket.ByTokens }

// unit returns what one call adds to used: 1, or for a token bucket the microseconds in which a token comes back.
func (s *session) unit() int64 {
	if s.tokens() {
		return int64(s.per) / s.count
	}
	return 1
}

// left returns what the vendor has left.
func (s *session) left() int64 {
	if s.slides() {
		return s.count - int64(len(s.counted))
	}
	if s.tokens() {
		return s.count - (s.used+s.unit()-1)/s.unit()
	}
	return s.count - s.used
}

// roll brings the vendor's count to the present time. A vendor with periods begins its next period, and other programs
// take their part of it at once. Any other vendor gets units back.
func (s *session) roll() {
	now := s.clock.now
	switch {
	case s.slides():
		s.counted = slices.DeleteFunc(s.counted, func(at bucket.Micros) bool { return at+s.per <= now })
	case s.tokens():
		s.used, s.filled = max(0, s.used-int64(now-max(s.filled, Start))), now
	default:
		if at := Start + (now-Start)/s.per*s.per; at != s.period {
			s.closePeriod()
			s.period, s.used = at, s.count*s.others/100
		}
	}
}

// closePeriod keeps the present period if the vendor refused more in it, beyond the calls under way, than in any
// before.
func (s *session) closePeriod() {
	if s.inOne-s.most > s.refused-s.underWay || s.refused == 0 {
		s.refused, s.underWay = s.inOne, s.most
	}
	s.inOne, s.most = 0, s.open
}
