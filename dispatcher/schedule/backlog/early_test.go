package backlog

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weir/bucket"
)

// TestEarlyList compares the list of early jobs with one that is sorted anew for every question.
func TestEarlyList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 4))
	e := &early{}
	var plain []Appointment
	next := uint64(0)
	var due []Place
	for round := range 20_000 {
		switch rnd.IntN(5) {
		case 0, 1, 2:
			next++
			l := Appointment{bucket.Micros(1 + rnd.IntN(5000)), next}
			e.add(l)
			i, _ := slices.BinarySearchFunc(plain, l, Appointment.compare)
			plain = slices.Insert(plain, i, l)
		case 3:
			if len(plain) == 0 || rnd.IntN(4) > 0 {
				break
			}
			l := plain[rnd.IntN(len(plain))]
			plain = slices.DeleteFunc(plain, func(x Appointment) bool { return x == l })
			if at, p, was := e.take(l.Seq); was != Early || at != l.At || p.Seq != l.Seq || p.after != l.Seq {
				t.Fatalf("took %v: %d %v %v", l, at, p, was)
			}
		case 4:
			if rnd.IntN(40) > 0 {
				break
			}
			now := e.next() + bucket.Micros(rnd.IntN(10))
			if now > 5000 {
				break
			}
			for len(plain) > 0 && plain[0].At <= now {
				due = append(due, Place{next, plain[0].At, plain[0].Seq})
				plain = plain[1:]
			}
			e.release(now, next)
		}
		if round%97 > 0 {
			continue
		}
		all := slices.Collect(e.all)
		if !slices.Equal(all, plain) || e.size != len(plain) || !slices.Equal(e.due, due) {
			t.Fatalf("round %d: %d jobs in the list, %d are to be; %d due, %d are to be", round, len(all), len(plain), len(e.due), len(due))
		}
		at := bucket.Micros(rnd.IntN(5000))
		i, _ := slices.BinarySearchFunc(plain, Appointment{at, 0}, Appointment.compare)
		if got := e.before(Appointment{at, 0}); got != i {
			t.Fatalf("%d are due before %d, %d are to be", got, at, i)
		}
		back := slices.Collect(e.backward(Appointment{at, 0}))
		slices.Reverse(back)
		if !slices.Equal(back, plain[:i]) {
			t.Fatalf("backward from %d: %d jobs, %d are to be", at, len(back), i)
		}
	}
	if len(e.runs) < 3 {
		t.Errorf("%d runs: it was never split", len(e.runs))
	}
}
