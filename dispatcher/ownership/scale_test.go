package ownership

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/dispatcher/internal/seeds"
)

// scene is what happened to a fleet: all replicas started, one joined, left or died, or nothing happened.
type scene struct {
	name     string
	took     time.Duration // until every partition was open in its place
	count    fleetCount
	moved    int           // partitions that have another owner
	needless int           // of them, those whose old and new owner were there before and are there still
	share    int           // partitions of the replica that came or went
	orphaned time.Duration // until the last partition of a dead replica was open again
}

// play runs a scene: begin changes the fleet and returns the replica that came or went, if any.
func (f *fleet) play(name string, begin func() *fleetReplica) scene {
	before, count := f.owners(), f.count
	f.count.gap = 0
	came, at := begin(), f.now
	f.balance()
	s := scene{name: name, took: f.now.Sub(at), count: f.count.since(count)}
	if !f.reopened.IsZero() {
		s.orphaned = f.reopened.Sub(at)
	}
	for p, r := range f.owner {
		switch from := before[p]; {
		case came != nil && (from == came.name || r == came):
			s.share++
			s.moved++
		case from != r.name && from != "":
			s.moved++
			s.needless++
		}
	}
	f.pass(5 * time.Second) // what is under way ends
	return s
}

// scenes plays all scenes, and checks what holds for a fleet of any size.
func (f *fleet) scenes() []scene {
	replicas := len(f.all)
	start := f.play("all start", func() *fleetReplica { return nil })
	f.pass(5 * time.Second)
	count := f.count
	f.pass(10 * time.Second)
	steady := scene{name: "10 s without a change", took: 10 * time.Second, count: f.count.since(count)}
	steady.count.gap = 0
	all := []scene{
		start, steady,
		f.play("one joins", func() *fleetReplica { return f.add(0) }),
		f.play("one leaves in order", func() *fleetReplica {
			r := f.all[0]
			r.leaves()
			return r
		}),
		f.play("one dies", func() *fleetReplica {
			r := f.all[1]
			renewed := r.renewed
			f.run(f.now.Add(fleetLimit), func() bool { return r.renewed != renewed }) // the others wait longest after a renewal
			r.dies()
			return r
		}),
	}
	for _, s := range all[2:] {
		s.check(f, replicas)
	}
	if s := steady.count; s.opens > 0 || s.messages() > 11*replicas*(replicas+2) {
		f.t.Errorf("in 10 s without a change %d replicas opened %d partitions and sent %d messages", replicas, s.opens, s.messages())
	}
	if f.oldest >= lease.Right {
		f.t.Errorf("a replica did not renew its lease for %s", f.oldest)
	}
	if f.count.vain > 0 {
		f.t.Errorf("replicas tried %d times to end the lease of one that lives", f.count.vain)
	}
	return all
}

// check checks a scene in which one replica came or went.
func (s scene) check(f *fleet, replicas int) {
	total := len(f.want)
	if most := len(f.apis) * ((total/len(f.apis) + replicas - 1) / replicas); s.share > most {
		f.t.Errorf("%s: it has %d of %d partitions, at most %d of them are its share", s.name, s.share, total, most)
	}
	if s.needless > 4*s.share {
		f.t.Errorf("%s: %d partitions moved besides its %d", s.name, s.needless, s.share)
	}
	if s.count.opens != s.moved {
		f.t.Errorf("%s: %d partitions moved, in %d moves", s.name, s.moved, s.count.opens)
	}
	if most := lease.Term + 2*time.Second; s.orphaned > most {
		f.t.Errorf("%s: its last partition was open again after %s, more than %s", s.name, s.orphaned, most)
	}
}

// table prints the scenes.
func (f *fleet) table(replicas int, all []scene) string {
	text := fmt.Sprintf("%d replicas, %d partitions; the oldest renewal was %s old\n"+
		"%-22s %8s %9s %9s %7s %7s %11s %9s %7s %7s %7s %9s %8s %8s\n", replicas, len(f.want), f.oldest.Round(time.Millisecond),
		"scene", "took", "messages", "a second", "writes", "asked", "deliveries", "answers", "opened", "moved", "share", "needless", "closed", "orphans")
	for _, s := range all {
		text += fmt.Sprintf("%-22s %7.1fs %9d %9.0f %7d %7d %11d %9d %7d %7d %7d %9d %7.1fs %7.1fs\n", s.name, s.took.Seconds(), s.count.messages(),
			float64(s.count.messages())/s.took.Seconds(), s.count.writes, s.count.asked, s.count.deliveries, s.count.answers,
			s.count.opens, s.moved, s.share, s.needless, s.count.gap.Seconds(), s.orphaned.Seconds())
	}
	return text
}

// TestSimulationOfFleet checks, in fleets of 20 replicas and, with -all, of 100 replicas and 10,000 partitions, how much
// ownership costs: how many messages it takes, how many partitions move, and for how long one has no owner. -v prints
// the figures.
func TestSimulationOfFleet(t *testing.T) {
	for seed := range seeds.Of(20) {
		replicas, apis, partitions := 20, 10, 100
		if seed%10 == 9 {
			replicas, apis, partitions = 100, 40, 250
		}
		f := newFleet(t, seed, replicas, apis, partitions)
		t.Logf("seed %d: %s", seed, f.table(replicas, f.scenes()))
	}
}

// BenchmarkFleet prints the figures of fleets of several sizes.
func BenchmarkFleet(b *testing.B) {
	for _, size := range []struct{ replicas, apis, partitions int }{
		{3, 10, 8}, {10, 10, 32}, {30, 40, 64}, {100, 40, 250}, {200, 10, 256}, {300, 10, 256},
	} {
		b.Run(fmt.Sprintf("%dx%d", size.replicas, size.apis*size.partitions), func(b *testing.B) {
			for b.Loop() {
				f := newFleet(b, 1, size.replicas, size.apis, size.partitions)
				b.Log(f.table(size.replicas, f.scenes()))
			}
		})
	}
}

// BenchmarkPlan measures what a replica among a hundred does after a member has changed, and ten times a second.
func BenchmarkPlan(b *testing.B) {
	f := newFleet(b, 1, 100, 40, 250)
	f.balance()
	f.pass(5 * time.Second)
	o := f.all[0].o
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			o.targets = nil
			o.plan(f.now)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			o.plan(f.now)
		}
	})
}
