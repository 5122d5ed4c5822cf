package backlog

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weir/bucket"
)

// TestListProperty compares a List with a sorted list of places, while random jobs come, come due, are passed and
// are taken out. The List must hold each job once, in the order of the places, and hold nothing when it is empty.
func TestListProperty(t *testing.T) {
	for seed := range uint64(300) {
		rnd, b, seq, now := rand.New(rand.NewPCG(seed, 4)), List{}, uint64(0), bucket.Micros(1_000_000_000)
		due, undue := []Place{}, map[uint64]bucket.Micros{}
		release := func(after uint64) {
			n := 0
			for s, at := range undue {
				if at <= now {
					due = append(due, Place{after, at, s})
					delete(undue, s)
					n++
				}
			}
			if got := b.release(now, after); got != n {
				t.Fatalf("seed %d: %d jobs came due, want %d", seed, got, n)
			}
			slices.SortFunc(due, Place.Compare)
		}
		for range 200 {
			now += bucket.Micros(rnd.IntN(10))
			switch rnd.IntN(5) {
			case 0, 1:
				release(seq)
				seq++
				b.Add(seq)
				due = append(due, Place{after: seq, Seq: seq})
			case 2:
				release(seq)
				seq++
				undue[seq] = now + 1 + bucket.Micros(rnd.IntN(50))
				b.AddEarly(Appointment{undue[seq], seq})
			case 3:
				p, ok := b.Next()
				if ok != (len(due) > 0) || ok && p != due[0] {
					t.Fatalf("seed %d: %v is next (%t), want the first of %v", seed, p, ok, due)
				}
				if ok {
					b.Pass(p)
					due = due[1:]
				}
			case 4:
				one := 1 + rnd.Uint64N(seq+1)
				_, wasUndue := undue[one]
				i := slices.IndexFunc(due, func(p Place) bool { return p.Seq == one })
				if p, ok := b.placeOf(one); ok != (i >= 0) || ok && (p != due[i] || b.Before(p) != i) {
					t.Fatalf("seed %d: job %d stands at %v behind %d, want place %d", seed, one, p, b.Before(p), i)
				}
				_, _, was := b.take(one)
				if (was == Early) != wasUndue || (was == Due) != (i >= 0) {
					t.Fatalf("seed %d: job %d was taken from %d", seed, one, was)
				}
				if delete(undue, one); i >= 0 {
					due = slices.Delete(due, i, i+1)
				}
			}
			if all := slices.Collect(b.Seqs); len(all) != len(due)+len(undue) || b.Size() != len(all) || b.NotDue() != len(undue) || b.IsEmpty() != (len(all) == 0 && b.early == nil) {
				t.Fatalf("seed %d: it holds %v, want %v and %v", seed, all, due, undue)
			}
		}
	}
}
