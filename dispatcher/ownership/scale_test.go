package ownership

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
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
	before, count, at := f.owners(), f.count, f.now
	f.count.gap = 0
	came := begin()
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
	joins := f.play("one joins", func() *fleetReplica { return f.add(0) })
	leaves := f.play("one leaves in order", func() *fleetReplica {
		f.all[0].leaves()
		return f.all[0]
	})
	last := f.all[1].renewed
	// After a renewal the others wait longest.
	f.run(f.now.Add(fleetLimit), func() bool { return f.all[1].renewed != last })
	dies := f.play("one dies", func() *fleetReplica {
		f.all[1].dies()
		return f.all[1]
	})
	all := []scene{start, steady, joins, leaves, dies}
	for _, s := range all[2:] {
		s.check(f, replicas)
	}
	if s := steady.count; s.opens > 0 || s.messages() > 11*replicas*(replicas+2) {
		f.t.Errorf("in 10 s without a change %d replicas opened %d partitions and sent %d messages",
			replicas, s.opens, s.messages())
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
	var text strings.Builder
	fmt.Fprintf(&text, "%d replicas, %d partitions; the oldest renewal was %s old; %d tries to end a lease in vain\n",
		replicas, len(f.want), f.oldest.Round(time.Millisecond), f.count.vain)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scene\ttook\tmessages\twrites\tanswers\tasked\tdeliveries\t"+
		"opened\tmoved\tshare\tneedless\tclosed\torphans")
	for _, s := range all {
		c := s.count
		fmt.Fprintf(w, "%s\t%.1fs\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1fs\t%.1fs\n",
			s.name, s.took.Seconds(), c.messages(), c.writes, c.answers, c.asked, c.deliveries,
			c.opens, s.moved, s.share, s.needless, c.gap.Seconds(), s.orphaned.Seconds())
	}
	if err := w.Flush(); err != nil {
		f.t.Fatal(err)
	}
	return text.String()
}

// TestSimulationOfFleet checks what ownership costs: how many messages it takes, how many partitions move, and for how
// long a partition has no owner. Fleets have 20 replicas and 1,000 partitions; with -all, one has 100 replicas and
// 10,000 partitions. -v prints the figures.
func TestSimulationOfFleet(t *testing.T) {
	for seed := range seeds.Of(20) {
		replicas, apis, partitions := 20, 10, 100
		if seed%20 == 19 {
			replicas, apis, partitions = 100, 40, 250
		}
		f := newFleet(t, seed, replicas, apis, partitions)
		t.Logf("seed %d: %s", seed, f.table(replicas, f.scenes()))
		if f.oldest >= lease.Right {
			t.Errorf("seed %d: a replica did not renew its lease for %s", seed, f.oldest)
		}
		if f.count.vain > 0 {
			t.Errorf("seed %d: replicas tried %d times to end the lease of one that lives", seed, f.count.vain)
		}
	}
}

// BenchmarkFleet prints the figures of fleets of several sizes.
func BenchmarkFleet(b *testing.B) {
	for _, size := range []struct{ replicas, apis, partitions int }{
		{3, 10, 8}, {10, 10, 32}, {30, 40, 64}, {100, 40, 250}, {300, 10, 256},
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
