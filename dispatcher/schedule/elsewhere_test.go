package schedule

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/bucket"
)

// sendAway puts the store on another machine: a round trip away, with a clock of its own.
func (m *simulation) sendAway() *simulation {
	m.skew = m.upTo(2*time.Hour) - time.Hour
	m.openStore()
	most := []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 15 * time.Millisecond}[m.rnd.IntN(3)]
	m.way, m.back = m.upTo(most), m.upTo(most)
	m.losses = []int{0, 0, 30, 8}[m.rnd.IntN(4)]
	m.busy = min(m.busy, 500*time.Microsecond) // more than the jitter has room for is another test's business
	m.s.Pipe.pace.Replica = "one"
	m.s.store.clock, m.s.store.tatOf = OtherClock, func(string) bucket.Micros { return 0 }
	return m
}

// leg returns how long one way takes this time.
func (m *simulation) leg(best time.Duration) time.Duration {
	if m.rnd.IntN(20) == 0 {
		return best + m.upTo(60*time.Millisecond)
	}
	return best + m.upTo(best/8+200*time.Microsecond)
}

// reserve asks the store and takes in its answer, at once or after a round trip.
func (m *simulation) reserve(fx Effects) {
	if m.s.store.clock == OwnClock {
		answers, err := m.store.Reserve(context.Background(), fx.Asks)
		m.s.Answer(&fx, Reply{Sent: m.now, Came: m.now, Answers: answers, Err: err})
		return
	}
	r := Reply{Sent: m.now}
	lost := m.losses > 0 && m.rnd.IntN(m.losses) == 0
	m.after(m.leg(m.way), func() {
		if r.Answers, r.Err = m.store.Reserve(context.Background(), fx.Asks); r.Err != nil {
			m.t.Fatal(r.Err)
		}
		if lost {
			m.forget(r.Answers, &fx)
			r.Answers, r.Err = nil, errLost
		}
		m.after(m.leg(m.back), func() {
			r.Came = m.now
			m.measure(&r, func() {
				if out := m.s.Answer(&fx, r); len(out.Unused) > 0 {
					m.tell(out.Unused)
				}
			})
		})
	})
}

// measure makes the further round trips that a reply needs, and then goes on.
func (m *simulation) measure(r *Reply, goOn func()) {
	if !m.s.At(m.now).IsRough(r) {
		goOn()
		return
	}
	trip := Trip{Sent: m.now}
	m.after(m.leg(m.way), func() {
		trip.Now = m.now.Add(m.skew)
		m.after(m.leg(m.back), func() {
			trip.Came = m.now
			r.Trips = append(r.Trips, trip)
			m.measure(r, goOn)
		})
	})
}

// TestSlowFirstTripIsMeasuredAgain checks that a slot is neither late nor lost because the first answer of a store
// elsewhere came slowly, if the store answers fast afterwards, and that replies are not measured again without need.
func TestSlowFirstTripIsMeasuredAgain(t *testing.T) {
	const skew, slow, fast = bucket.Micros(7_000_000), 33 * time.Millisecond, 400 * time.Microsecond
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	m.s.store.clock = OtherClock
	m.s.Pipe.pace.GrantTTL = 40 * time.Millisecond
	trip := func(took time.Duration) Trip { // the store reads its clock at the beginning
		sent := m.now
		m.now = m.now.Add(took)
		return Trip{sent, m.now, sent + skew}
	}
	first := trip(slow)
	r := Reply{Sent: first.Sent, Came: first.Came, Answers: []bucket.Answer{{Now: first.Now, Grants: []bucket.Grant{{At: first.Now}}}}}
	for m.s.At(m.now).IsRough(&r) {
		r.Trips = append(r.Trips, trip(fast))
	}
	if n := len(r.Trips); n != 1 {
		t.Errorf("%d further round trips were made, want 1", n)
	}
	q := m.s.Push("k", 1, m.part)
	j := q.begin(q.waits.Take(bucket.Normal))
	m.s.Pipe.stage(j, j.Priority)
	j.Phase = asking
	m.s.store.ask()
	m.s.Answer(&Effects{asked: [][]*Job{{j}}}, r)
	if late := first.Sent.Until(j.At); late < 0 || late > fast {
		t.Errorf("the slot is %s late", late)
	}
	if left := m.now.Until(m.s.At(m.now).Latest(j)); left < 0 {
		t.Errorf("the slot was lost %s ago", -left)
	}
	next := trip(slow)
	if m.s.At(m.now).IsRough(&Reply{Sent: next.Sent, Came: next.Came, Answers: []bucket.Answer{{Now: next.Now}}}) {
		t.Error("a slow trip is measured again although a fast one has just told the clock")
	}
}

var errLost = errors.New("lost on the way")

// forget ends grants without a holder, as their lease would.
func (m *simulation) forget(answers []bucket.Answer, fx *Effects) {
	var uses []bucket.Use
	for i, a := range answers {
		for _, g := range a.Grants {
			uses = append(uses, bucket.Use{Key: fx.Asks[i].Key, Grant: g})
		}
	}
	m.after(time.Second, func() { m.settle(uses) })
}
