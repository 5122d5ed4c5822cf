package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestSimulationOfOwnership: whatever happens to replicas, clocks and messages, no two may start calls of a partition; and
// when it is over, all partitions are shared out, evenly.
func TestSimulationOfOwnership(t *testing.T) {
	for seed := range seeds(400) {
		w := newWorld(t, seed)
		quiet := w.now.Add(95 * time.Second)
		for at := 5 * time.Second; at < 60*time.Second; at += w.upTo(8 * time.Second) {
			w.after(at, w.trouble)
		}
		w.after(70*time.Second, func() { w.calm = true })
		w.run(quiet)
		w.settled(seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// settled holds the end against what it should be.
func (w *world) settled(seed uint64) {
	for api, n := range w.apis {
		open := map[string]int{}
		for i := range n {
			for _, r := range w.all {
				if r.mayCall(bucket.PartitionID{API: api, Number: i}) {
					open[r.name]++
				}
			}
		}
		sum := 0
		for name, k := range open {
			sum += k
			if k > (n+len(w.all)-1)/len(w.all) {
				w.t.Errorf("seed %d: %s has %d of %d partitions of %s, and there are %d replicas", seed, name, k, n, api, len(w.all))
			}
		}
		if sum != n {
			w.t.Errorf("seed %d: of %d partitions of %s %d are open: %v", seed, n, api, sum, open)
		}
	}
}

// trouble does something to a replica or the registry.
func (w *world) trouble() {
	r := w.all[w.rnd.IntN(len(w.all))]
	switch w.rnd.IntN(6) {
	case 0, 1: // stopped, for longer than its lease perhaps
		if !r.asleep {
			r.asleep = true
			life := r.life
			w.after(w.upTo(15*time.Second), func() {
				if r.life == life {
					r.asleep = false
					for _, do := range r.paused {
						do()
					}
					r.paused = nil
				}
			})
		}
	case 2: // killed
		r.start()
	case 3: // stopped in order: it leaves first
		if r.o != nil {
			o := r.o
			r.leaving = true
			o.leave()
			r.run(6*time.Second, func() {
				if r.o == o && o.empty() {
					r.write(r.session, nil, r.revision, func(uint64, error) {})
				}
				r.start()
			})
		}
	case 4: // the registry elects a leader
		w.down = true
		w.after(w.upTo(9*time.Second), func() { w.down = false })
	case 5:
		if r.o != nil {
			r.watch()
		}
	}
}
