package turns

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/bucket"
)

// queue is a queue that only takes turns.
type queue struct {
	seats     Seats[*queue]
	ungranted int
}

func (q *queue) Seats() *Seats[*queue]         { return &q.seats }
func (q *queue) Ungranted(bucket.Priority) int { return q.ungranted }

// TestTurnsProperty drives the turns alone with random arrivals, refusals and departures. Tenants that always
// wait stay within two service times of each other, and nothing that waits is lost.
func TestTurnsProperty(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		all := New[*queue](bucket.DefaultWeights, nil)
		w := all.normal()
		tenants := make([]*tenant[*queue], 2+rnd.IntN(4))
		taken := make([]ServiceTime, len(tenants))
		dearest, waiting := ServiceTime(1), 0
		for i := range tenants {
			tenants[i] = &tenant[*queue]{name: fmt.Sprint(i)}
			for range 2 + rnd.IntN(20) {
				q := &queue{seats: Seats[*queue]{normal: seat[*queue]{tenant: tenants[i], lastService: 1 + ServiceTime(rnd.IntN(30))}}}
				dearest = max(dearest, q.seats.normal.lastService)
				w.push(q, askLine)
				waiting++
			}
		}
		for range 5000 {
			q, _ := w.pop(askLine)
			if rnd.IntN(3) == 0 {
				w.book(q, 0)
			} else {
				w.book(q, 1)
				for i := range tenants {
					if tenants[i] == q.seats.normal.tenant {
						taken[i] += q.seats.normal.lastService
					}
				}
			}
			w.push(q, askLine)
		}
		for i := range taken {
			for j := range taken {
				if taken[i]-taken[j] > 2*dearest {
					t.Fatalf("seed %d: tenants took %v with tolls up to %d", seed, taken, dearest)
				}
			}
		}
		if n := len(all.TakeAll()); n != waiting || w.waiting() != 0 {
			t.Fatalf("seed %d: %d of %d queues waited, then %d do", seed, n, waiting, w.waiting())
		}
	}
}

// TestTurnsLendAndTakeBack drives random turns of queues with and without ready jobs. A queue must wait in one line at
// most, a line must have lent each tenant what it has lent the tenant's queues, and when every queue has passed and
// left, nothing may be lent and no tenant left.
func TestTurnsLendAndTakeBack(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		all := New[*queue](bucket.DefaultWeights, nil)
		w := all.normal()
		queues := make([]*queue, 12)
		for i := range queues {
			queues[i] = &queue{}
			w.join(queues[i], fmt.Sprint(i%3))
		}
		for range 500 {
			switch q := queues[rnd.IntN(len(queues))]; rnd.IntN(6) {
			case 0:
				q.ungranted = rnd.IntN(5) / 2
				w.wait(q)
				w.wait(q)
			case 1:
				w.toAsk()
			case 2:
				w.toPrepare()
			case 3:
				w.take(q, 1+ServiceTime(rnd.IntN(9)), 1+rnd.IntN(3))
			case 4:
				w.book(q, rnd.IntN(2))
			case 5:
				w.pass(q)
			}
			lent, waiting := map[*tenant[*queue]][2]ServiceTime{}, 0
			for _, q := range queues {
				sum := lent[q.seats.normal.tenant]
				sum[askLine] += q.seats.normal.lent[askLine]
				sum[prepareLine] += q.seats.normal.lent[prepareLine]
				if lent[q.seats.normal.tenant] = sum; q.seats.normal.Blocked {
					waiting++
				}
			}
			coming := map[*tenant[*queue]]int{}
			for _, q := range queues {
				if q.seats.normal.came != 0 {
					coming[q.seats.normal.tenant]++
				}
			}
			for of, sum := range lent {
				if of.coming != coming[of] || w.coming[of] != (of.coming > 0) {
					t.Fatalf("seed %d: %d queues of tenant %s wait for a slot, it counts %d", seed, coming[of], of.name, of.coming)
				}
				if of.in[askLine].lent != sum[askLine] || of.in[prepareLine].lent != sum[prepareLine] {
					t.Fatalf("seed %d: tenant %s was lent %d and %d, its queues %v", seed, of.name, of.in[askLine].lent, of.in[prepareLine].lent, sum)
				}
			}
			if w.waiting() != waiting {
				t.Fatalf("seed %d: %d queues stand in the lines, %d wait", seed, w.waiting(), waiting)
			}
		}
		w.forget(func(q *queue) bool { return true })
		for _, q := range queues {
			q.ungranted = 0
			w.pass(q)
			w.leave(q)
		}
		if w.waiting() != 0 || len(w.tenants) != 0 || len(w.coming) != 0 {
			t.Fatalf("seed %d: %d queues and %d tenants are left, of which %d wait", seed, w.waiting(), len(w.tenants), len(w.coming))
		}
	}
}
