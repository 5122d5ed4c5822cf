package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/bucket/queue"
)

// TestTimeline checks that earlier configurations are possible until a later one is certainly in force, and a moment
// longer, even if it is unknown whether one of them ever took effect.
func TestTimeline(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	l := Timeline{
		{Terms: Terms{Rate: 1}},
		{Terms: Terms{Rate: 2}, From: at(10), By: at(11)},
		{Terms: Terms{Rate: 3}, From: at(20)},
		{Terms: Terms{Rate: 4}, From: at(30), By: at(31)},
	}
	for second, want := range map[int][]int{5: {1}, 11: {1, 2}, 15: {2}, 25: {2, 3}, 31: {2, 3, 4}, 40: {4}} {
		var rates []int
		for _, p := range l.Possible(at(second), at(second)) {
			rates = append(rates, p.Rate)
		}
		if !slices.Equal(rates, want) {
			t.Errorf("second %d: %v, want %v", second, rates, want)
		}
	}
}

// TestChanges checks that a seed makes one series of changes, that each of them changes something, and that every
// setting has its turn.
func TestChanges(t *testing.T) {
	o := Options{Seed: 1, Server: Embedded, Rate: 20, Jobs: 40, ConfigChanges: 2 * len(Settings())}
	one := New(&o)
	if !reflect.DeepEqual(one, New(&o)) {
		t.Error("the same seed made two plans")
	}
	seen, before := map[string]int{}, FirstTerms(&o)
	for _, c := range one.Changes {
		seen[c.Setting]++
		if c.Terms == before {
			t.Errorf("%s changed nothing", c.Setting)
		}
		before = c.Terms
		before.Gone = false
	}
	for _, name := range Settings() {
		if seen[name] != 2 {
			t.Errorf("%s changed %d times", name, seen[name])
		}
	}
	o.Takeovers = 1
	for _, c := range New(&o).Changes {
		if c.Terms.account != "" || c.Terms.quota > 0 || c.Terms.budget > 0 {
			t.Fatalf("%s: two weirs without Redis share a limit: %+v", c.Setting, c.Terms)
		}
	}
	if o.Settings = []string{"limits", "quota"}; o.validateSettings() == nil {
		t.Error("nothing is left to change")
	}
	if o.Settings = []string{"weather"}; o.validateSettings() == nil {
		t.Error("there is no setting of that name")
	}
}

// TestStrikes checks that a seed makes one plan for a fleet, with every replica and node in turn, and that no cut is
// shorter than a lease.
func TestStrikes(t *testing.T) {
	o := Options{
		Seed: 1, Server: External, Replicas: 3, WorkerKills: 6, ServerKills: 3, Stops: 3,
		Fleet:       FleetFaults{CutNATS: 3, CutRedis: 3, CutAPI: 3, CutNode: 3, RedisKills: 2, RedisLosses: 1, RedisSetbacks: 2, FlipNodes: 6, DeleteRestarts: 3, Scales: 3, Rolls: 1, ServerRolls: 1},
		PowerLosses: 2,
	}
	one := New(&o)
	if !reflect.DeepEqual(one, New(&o)) {
		t.Error("the same seed made two plans")
	}
	if len(one.Strikes) != 45 || len(one.Lives)+len(one.Events) > 0 {
		t.Errorf("%d strikes, %d lives, %d events", len(one.Strikes), len(one.Lives), len(one.Events))
	}
	hit, flipped := map[Kind]map[int]int{}, map[Part]bool{}
	for _, s := range one.Strikes {
		if hit[s.Kind] == nil {
			hit[s.Kind] = map[int]int{}
		}
		hit[s.Kind][s.Target]++
		switch s.Kind {
		case StopReplica, CutNATS, CutRedis, CutAPI, CutNode:
			if s.Last <= lease.Term+time.Second {
				t.Errorf("%s for %v", s.Kind, s.Last)
			}
		}
		if s.Late > 0 && s.Kind != CutPower {
			t.Errorf("%s comes %v late", s.Kind, s.Late)
		}
		if (s.Kind == SetBackRedis) != (s.Behind > 0) {
			t.Errorf("%s with a file that is %v older", s.Kind, s.Behind)
		}
		if s.Part != "" {
			flipped[s.Part] = true
		}
		if (s.Kind == FlipNode) != (s.Part != "") || s.Part != "" && !s.Part.OfMessages() && !s.Orderly {
			t.Errorf("%s in %q, orderly: %v", s.Kind, s.Part, s.Orderly)
		}
		if s.Kind == CutAPI && s.Held != Lost {
			t.Error("calls arrive ten seconds late, for which weir can do nothing")
		}
	}
	for k, n := range map[Kind]int{KillReplica: 2, StopReplica: 1, CutNATS: 1, CutRedis: 1, CutAPI: 1, CutNode: 1, KillNode: 1, FlipNode: 2, RestartDeleted: 1} {
		if want := map[int]int{0: n, 1: n, 2: n}; !reflect.DeepEqual(hit[k], want) {
			t.Errorf("%s hits %v", k, hit[k])
		}
	}
	if len(flipped) != len(parts) {
		t.Errorf("bytes are flipped in %v", flipped)
	}
	if o.Seed = 2; reflect.DeepEqual(one, New(&o)) {
		t.Error("two seeds made the same plan")
	}
}

// TestLargeKeysOf checks that the keys of large jobs belong to the partition whose blocks they fill, and are different.
func TestLargeKeysOf(t *testing.T) {
	o := Options{Replicas: 2}
	for partition := range o.Partitions() {
		keys := o.LargeKeysOf(partition)
		for _, key := range keys {
			if p := queue.PartitionOf(key, o.Partitions()); p != partition {
				t.Errorf("%s belongs to partition %d, not %d", key, p, partition)
			}
		}
		if slices.Sort(keys); len(slices.Compact(keys)) != LargeKeys {
			t.Errorf("partition %d has the keys %q", partition, keys)
		}
	}
	if all := LargeKeys * BlockJobs * LargeBody; all < 10<<20 {
		t.Errorf("%d bytes of large jobs do not fill a block of 8 MiB, with some left for the next", all)
	}
}

// TestFleetOptions checks that options that do not fit together are refused, and that the error says what to do
// instead.
func TestFleetOptions(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		says   string // "" if the options are valid
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.Replicas = 5 }, "--replicas must be from 1 to 4"},
		{func(o *Options) { o.Replicas = 0 }, "--replicas must be from 1 to 4"},
		{func(o *Options) { o.Replicas = 1 }, "need a fleet"},
		{func(o *Options) { o.Replicas, o.Fleet, o.Quota = 1, FleetFaults{}, 200 }, "needs a fleet"},
		{func(o *Options) { o.Quota = 200 }, ""},
		{func(o *Options) { o.Server = Embedded }, "--server external"},
		{func(o *Options) { o.Takeovers = 1 }, "--stops"},
		{func(o *Options) { o.PowerLosses = 1 }, ""}, // of all nodes: no build with hooks is needed
		{func(o *Options) { o.Replicas, o.Fleet = 1, FleetFaults{Scales: 1} }, "need a fleet"},
		{func(o *Options) { o.Keys = 10 }, "multiple of 12"},
		{func(o *Options) { o.Fleet.CutNode = -1 }, "--cut-node must be from 0"},
	} {
		o := Options{
			Server: External, Replicas: 3, Rate: 20, Keys: 12, Jobs: 40, Durability: "always", Fleet: FleetFaults{CutNATS: 1},
		}
		c.change(&o)
		switch err := o.Validate(); {
		case c.says == "" && err != nil:
			t.Errorf("%+v: %v", o, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: %v, and not %q", o, err, c.says)
		}
	}
}

// TestPlan checks that a seed makes one plan, and another seed another plan.
func TestPlan(t *testing.T) {
	o := Options{Seed: 1, Server: External, WorkerKills: 20, ServerKills: 5, Stops: 5, Cuts: 5, DiskFulls: 1, Takeovers: 2}
	one, again := New(&o), New(&o)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed made two plans")
	}
	if len(one.Lives) != 22 || len(one.Events) != 16 {
		t.Errorf("%d lives, %d events", len(one.Lives), len(one.Events))
	}
	if o.Seed = 2; reflect.DeepEqual(one, New(&o)) {
		t.Error("two seeds made the same plan")
	}
}
