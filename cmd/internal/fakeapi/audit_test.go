package fakeapi_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
)

// at returns arrivals of one key at these times, numbered in this order.
func at(key string, times ...int64) []fakeapi.Arrival {
	var out []fakeapi.Arrival
	for i, when := range times {
		out = append(out, fakeapi.Arrival{Number: int64(i + 1), At: when, End: when + 1, Key: key, Cost: 1, Ending: fakeapi.Answered})
	}
	return out
}

func TestFullestWindow(t *testing.T) {
	tests := []struct {
		name  string
		times []int64
		per   time.Duration
		want  int
	}{
		{"none", nil, 10, 0},
		{"one", []int64{5}, 10, 1},
		{"exactly a window apart is outside", []int64{0, 10, 20}, 10, 1},
		{"just inside", []int64{0, 9, 18}, 10, 2},
		{"out of order", []int64{18, 0, 9, 1}, 10, 3},
		{"all at once", []int64{7, 7, 7}, 1, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fakeapi.FullestByCount(at("k", tt.times...), tt.per); got.Count != tt.want {
				t.Errorf("%+v, want %d", got, tt.want)
			}
		})
	}
}

// TestFullestWindowIsExact compares the fullest windows with those of a separate count of every window.
func TestFullestWindowIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		arrivals := make([]fakeapi.Arrival, random.IntN(12))
		for i := range arrivals {
			arrivals[i] = fakeapi.Arrival{Number: int64(i), At: random.Int64N(40), Cost: 1 + random.Int64N(5)}
		}
		per := 1 + random.Int64N(15)
		var count int
		var cost int64
		for _, from := range arrivals {
			n, sum := 0, int64(0)
			for _, a := range arrivals {
				if a.At >= from.At && a.At < from.At+per {
					n++
					sum += a.Cost
				}
			}
			count, cost = max(count, n), max(cost, sum)
		}
		if got := fakeapi.FullestByCount(arrivals, time.Duration(per)); got.Count != count {
			t.Fatalf("%+v, want %d calls of %+v in %d", got, count, arrivals, per)
		}
		if got := fakeapi.FullestByCost(arrivals, time.Duration(per)); got.Cost != cost {
			t.Fatalf("%+v, want cost %d of %+v in %d", got, cost, arrivals, per)
		}
	}
}

func TestMinGap(t *testing.T) {
	if _, ok := fakeapi.MinGap(at("k", 1)); ok {
		t.Error("one arrival has a gap")
	}
	gap, ok := fakeapi.MinGap(at("k", 100, 0, 40, 90))
	if !ok || gap != (fakeapi.Gap{Length: 10, Before: 4, After: 1}) {
		t.Errorf("gap %+v", gap)
	}
}

func TestMostInFlight(t *testing.T) {
	arrivals := at("k", 0, 5, 10, 10, 30)
	arrivals[0].End, arrivals[1].End = 10, 40 // the first ends when the third begins
	if most, when := fakeapi.MostInFlight(arrivals); most != 3 || when != 10 {
		t.Errorf("%d since %d", most, when)
	}
	arrivals[0].Ending = fakeapi.Running
	if most, _ := fakeapi.MostInFlight(arrivals); most != 4 {
		t.Errorf("with one that never ended: %d", most)
	}
}

// sequenced returns arrivals of one key with these bodies, one nanosecond apart.
func sequenced(key string, bodies ...string) []fakeapi.Arrival {
	arrivals := at(key, make([]int64, len(bodies))...)
	for i := range arrivals {
		arrivals[i].At, arrivals[i].Body = int64(i), []byte(bodies[i])
	}
	return arrivals
}

func TestOrder(t *testing.T) {
	arrivals := append(sequenced("a", `{"n":{"seq":1}}`, `{"n":{"seq":"3"}}`, `{"n":{"seq":2}}`, `{"n":{"seq":3}}`, `{"n":{"seq":1}}`),
		sequenced("b", `{"n":{"seq":0}}`, `{"n":{}}`, `nonsense`)...)
	by := fakeapi.ByField("n.seq")
	inversions, unidentified := fakeapi.Order(arrivals, by, fakeapi.FirstAttempts)
	if len(inversions) != 1 || unidentified != 2 {
		t.Fatalf("inversions %+v, unidentified %d", inversions, unidentified)
	}
	if i := inversions[0]; i.Key != "a" || i.BeforeSeq != 3 || i.AfterSeq != 2 || i.Before.At != 1 || i.After.At != 2 {
		t.Errorf("inversion %+v", i)
	}
	if inversions, _ := fakeapi.Order(arrivals, by, fakeapi.EveryAttempt); len(inversions) != 2 {
		t.Errorf("every attempt: %+v", inversions)
	}
}

func TestCalledTwice(t *testing.T) {
	arrivals := at("k", 0, 10, 20, 30)
	for i, path := range []string{"/a/1", "/a/2", "/a/1", "/"} {
		arrivals[i].Path, arrivals[i].Billed = path, true
	}
	twice, unidentified := fakeapi.CalledTwice(arrivals, fakeapi.BySegment(2))
	if len(twice) != 1 || twice[0].ID != "1" || len(twice[0].Arrivals) != 2 || twice[0].Billed != 2 || unidentified != 1 {
		t.Errorf("called twice %+v, unidentified %d", twice, unidentified)
	}
	if twice, _ := fakeapi.CalledTwice(arrivals, fakeapi.BySegment(-1)); len(twice) != 1 {
		t.Errorf("by the last segment: %+v", twice)
	}
	if twice, unidentified := fakeapi.CalledTwice(arrivals, fakeapi.ByBody); len(twice) != 0 || unidentified != 4 {
		t.Errorf("by body: %+v, %d", twice, unidentified)
	}
}

func TestCounts(t *testing.T) {
	arrivals := append(at("b", 1, 2), at("a", 3)...)
	arrivals[0].Status, arrivals[0].Billed, arrivals[0].Charge = 200, true, 4
	arrivals[2].Ending = fakeapi.Running
	if got := fakeapi.CountByStatus(arrivals); got[200] != 1 || got[0] != 2 {
		t.Errorf("by status %v", got)
	}
	if got := fakeapi.Bills(arrivals); got != (fakeapi.Invoice{Calls: 1, Charged: 4, Unknown: 1}) {
		t.Errorf("invoice %+v", got)
	}
	if got := fakeapi.KeysOf(arrivals); len(got) != 2 || got[0] != "a" {
		t.Errorf("keys %q", got)
	}
	if got := fakeapi.OfKey(arrivals, "b"); len(got) != 2 {
		t.Errorf("of key %+v", got)
	}
}
