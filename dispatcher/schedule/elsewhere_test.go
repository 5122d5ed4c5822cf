package schedule

import (
	"context"
	"errors"
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
			if out := m.s.Answer(&fx, r); len(out.Unused) > 0 {
				m.tell(out.Unused)
			}
		})
	})
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
