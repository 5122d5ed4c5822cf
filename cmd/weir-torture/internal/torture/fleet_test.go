package torture

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/cmd/internal/fakeapi"
)

// rightFleet is the evidence of two replicas that make a hundred calls by turns, ten per second. There is one fault
// after five seconds, and no call for two seconds after it.
func rightFleet() *Evidence {
	e := &Evidence{
		Options: &Options{Replicas: 2}, Ends: &Ends{Results: map[string]int{}, Events: map[string]int{}}, Began: time.Unix(1000, 0),
		Timeline: timeline{{terms: terms{rate: 10, burst: 1}}},
		Replicas: []string{"one", "two"}, Keys: []string{"k"}, InFlight: 2, Faults: map[kind]int{},
	}
	at := func(n int) time.Duration {
		d := time.Duration(n) * 100 * time.Millisecond
		if n > 50 {
			d += 2 * time.Second
		}
		return d
	}
	for n := range 100 {
		id := fmt.Sprintf("k-%d", n)
		a := call(n, id, at(n))
		a.End = a.At + int64(150*time.Millisecond) // two calls at a time
		a.Fields = append(a.Fields, fakeapi.Field{Name: nameHeader, Value: e.Replicas[n%2]})
		e.Arrivals = append(e.Arrivals, a)
		e.Receipts = append(e.Receipts, Receipt{ID: id, Key: "k", Stream: "S", Seq: uint64(n + 1), At: e.Began.Add(at(n)), Waited: time.Millisecond})
		e.Ends.Results[id] = 1
	}
	e.Receipts[55].Waited = time.Second
	e.Calm = []span{{e.Began, e.Began.Add(time.Hour)}}
	strike := e.Began.Add(at(50) + 50*time.Millisecond)
	e.Strikes = []Strike{{Kind: killReplica, Target: "one", At: strike, Ended: strike.Add(time.Second), Over: strike.Add(3 * time.Second)}}
	e.Troubles = []Trouble{{strike.Add(time.Millisecond), "no answer"}, {strike.Add(time.Hour), "no answer"}}
	return e
}

// TestFleetJudge checks that the verdict finds each broken promise of a fleet, and measures the recovery from a fault.
func TestFleetJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(e *Evidence)
		breaks string
	}{
		{"all well", func(*Evidence) {}, ""},
		{"three at once", func(e *Evidence) { e.Arrivals[7].End += int64(150 * time.Millisecond) }, "at once"},
		{"a result cannot be read", func(e *Evidence) { e.Ends.Unread = []string{"read WEIR_RESULTS"} }, "unread"},
		{"never got over", func(e *Evidence) { e.Strikes[0].Over = time.Time{} }, "resumed"},
		{"a copy stayed away", func(e *Evidence) { e.Strikes[0].Kind, e.Strikes[0].Behind = flipNode, "S" }, "copies"},
		{"the copies came back", func(e *Evidence) { e.Strikes[0].Kind = scaleStream }, ""},
		{"one does the work", func(e *Evidence) {
			for i := range 20 {
				e.Arrivals[2*i].Fields[1].Value = "two"
			}
		}, "work share"},
		{"the shares of replicas are unknown", func(e *Evidence) { e.Calm = nil }, "work share"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := rightFleet()
			c.spoil(e)
			r := Judge(e)
			var names []string
			for _, f := range r.Findings {
				if f.Outcome != bucket.Pass {
					names = append(names, f.Name)
				}
			}
			if got := strings.Join(names, ","); got != c.breaks {
				t.Errorf("broken: %q, want %q: %+v", got, c.breaks, r)
			}
		})
	}
	a := Judge(rightFleet()).Aftermath[0]
	if a.Of != 1 || a.Stall.Max != 2050*time.Millisecond || a.After.Max != 1050*time.Millisecond || a.Intake.Max != time.Second || a.Trouble != 1 {
		t.Errorf("aftermath %+v", a)
	}
	gone := rightFleet()
	gone.Arrivals, gone.Strikes[0].Over = gone.Arrivals[:51], time.Time{}
	a = Judge(gone).Aftermath[0]
	if a.Missing != 1 || a.Stall.Max != time.Second+resumesWithin || a.After.Max != resumesWithin {
		t.Errorf("no call came after the fault: aftermath %+v", a)
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
	one := newPlan(&o)
	if !reflect.DeepEqual(one, newPlan(&o)) {
		t.Error("the same seed made two plans")
	}
	if len(one.strikes) != 45 || len(one.lives)+len(one.events) > 0 {
		t.Errorf("%d strikes, %d lives, %d events", len(one.strikes), len(one.lives), len(one.events))
	}
	hit, flipped := map[kind]map[int]int{}, map[part]bool{}
	for _, s := range one.strikes {
		if hit[s.kind] == nil {
			hit[s.kind] = map[int]int{}
		}
		hit[s.kind][s.target]++
		switch s.kind {
		case stopReplica, cutNATS, cutRedis, cutAPI, cutNode:
			if s.last <= lease.Term+time.Second {
				t.Errorf("%s for %v", s.kind, s.last)
			}
		}
		if (s.kind == setBackRedis) != (s.behind > 0) {
			t.Errorf("%s with a file that is %v older", s.kind, s.behind)
		}
		if s.part != "" {
			flipped[s.part] = true
		}
		if (s.kind == flipNode) != (s.part != "") || s.part != "" && !s.part.ofMessages() && !s.orderly {
			t.Errorf("%s in %q, orderly: %v", s.kind, s.part, s.orderly)
		}
		if s.kind == cutAPI && s.held != lost {
			t.Error("calls arrive ten seconds late, for which weir can do nothing")
		}
	}
	for k, n := range map[kind]int{killReplica: 2, stopReplica: 1, cutNATS: 1, cutRedis: 1, cutAPI: 1, cutNode: 1, killNode: 1, flipNode: 2, restartDeleted: 1} {
		if want := map[int]int{0: n, 1: n, 2: n}; !reflect.DeepEqual(hit[k], want) {
			t.Errorf("%s hits %v", k, hit[k])
		}
	}
	if len(flipped) != len(parts) {
		t.Errorf("bytes are flipped in %v", flipped)
	}
	if o.Seed = 2; reflect.DeepEqual(one, newPlan(&o)) {
		t.Error("two seeds made the same plan")
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
