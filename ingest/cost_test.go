package ingest_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

func TestCost(t *testing.T) {
	job := &ingest.Job{
		Cost: 7, Body: []byte(`{"n":12,"deep":[{"n":3}],"text":"4","zero":0,"half":1.5,"big":99999999999999999999,"e":1e2}`),
		Header: nats.Header{"X-Units": {"9"}, "x-low": {"2"}, "X-Bad": {"many"}, "X-Zero": {"0"}, "X-Minus": {"-1"}, "X-Empty": {}, "Weir-Cost": {"7"}},
	}
	for _, c := range []struct {
		source ingest.Cost
		want   int64 // 0: an error
	}{
		{nil, 1},
		{ingest.Units(5), 5},
		{ingest.FromHeader("Weir-Cost"), 7},
		{ingest.FromHeader("weir-cost"), 7},
		{ingest.FromHeader("X-Units"), 9},
		{ingest.FromHeader("X-Low"), 2},
		{ingest.FromHeader("X-None"), 1},
		{ingest.FromHeader("X-Empty"), 1},
		{ingest.FromHeader("X-Bad"), 0},
		{ingest.FromHeader("X-Zero"), 0},
		{ingest.FromHeader("X-Minus"), 0},
		{ingest.FromPointer("/n"), 12},
		{ingest.FromPointer("/deep/0/n"), 3},
		{ingest.FromPointer("/text"), 0},
		{ingest.FromPointer("/zero"), 0},
		{ingest.FromPointer("/half"), 0},
		{ingest.FromPointer("/big"), 0},
		{ingest.FromPointer("/e"), 0},
		{ingest.FromPointer("/none"), 0},
	} {
		got, err := c.source.Of(job)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v, want %d", c.source, got, err, c.want)
		}
	}
	if _, err := ingest.FromPointer("/big").Of(job); err == nil || !strings.Contains(err.Error(), "from 1 to 4503599627370496") {
		t.Errorf("a cost that is too large: %v", err)
	}
}

// TestCostStandsOnce checks that a job is refused if the header with its cost or its key has two values, in one
// spelling of the name or in two, because the api would get both.
func TestCostStandsOnce(t *testing.T) {
	rule := plainRule
	rule.ForwardHeaders = []string{"X-Units"}
	costs, key := rule, rule
	costs.Costs = []ingest.CostBound{{Limit: "units", From: ingest.FromHeader("Weir-Header-X-Units"), Most: 1000}}
	key.Key.Header = "Weir-Header-X-Units"
	for _, h := range []nats.Header{
		{"Weir-Header-X-Units": {"1", "500"}}, {"Weir-Header-X-Units": {"1"}, "weir-header-x-units": {"500"}},
	} {
		for of, rule := range map[string]*ingest.Rule{"cost": &costs, "key": &key} {
			m := ingest.Message{Header: h, Body: []byte("x")}
			if of == "cost" {
				m.Key = "k"
			}
			if _, refusal := ingest.Parse(m, rule, someNow); refusal == nil || refusal.Code != ingest.Invalid {
				t.Errorf("%s in %v: %v", of, h, refusal)
			}
		}
	}
}

// weight returns num/den.
func weight(t *testing.T, num, den int64) ingest.Weight {
	t.Helper()
	w, ok := ingest.Weight{}.Times(num, den)
	if !ok {
		t.Fatalf("%d/%d is no weight", num, den)
	}
	return w
}

// TestWeights checks that weights are exact, and that a term is rounded up to a whole unit.
func TestWeights(t *testing.T) {
	for _, c := range []struct{ num, den, n, want int64 }{
		{5, 1, 7, 35},
		{1, 3, 9, 3},
		{1, 3, 10, 4},
		{1_000_001, 1_000_000, 1, 2},
		{1_000_001, 1_000_000, 1_000_000, 1_000_001},
		{2_500_000, 1_000_000, 185_211, 463_028}, // 2.50 for a million: 463,027.5 millionths
		{1, 1_000_000, 0, 0},
		{1 << 50, 1, 1 << 50, ingest.MostUnits},
	} {
		if got := weight(t, c.num, c.den).Of(c.n); got != c.want {
			t.Errorf("%d times %d/%d: %d, want %d", c.n, c.num, c.den, got, c.want)
		}
	}
	if _, ok := weight(t, 1<<40, 1).Times(1<<40, 1); ok {
		t.Error("a weight beyond all bounds is taken")
	}
}

// TestSum checks sums of terms: their defaults, bounds and weights.
func TestSum(t *testing.T) {
	cost := ingest.Cost{
		{From: ingest.Source{Number: 2000}},
		{From: ingest.Source{Pointer: "/in"}, Default: 1000, Weight: weight(t, 5, 2)},
		{From: ingest.Source{Header: "X-Out"}, NoDefault: true, Max: 500, Weight: weight(t, 10, 1)},
	}
	for _, c := range []struct {
		body, out string
		want      int64 // 0: an error
	}{
		{`{"in":3}`, "7", 2000 + 8 + 70},
		{`{}`, "0", 2000 + 2500},
		{`not JSON`, "1", 2000 + 2500 + 10},
		{`{"in":null}`, "1", 2000 + 2500 + 10},
		{`{"in":3}`, "500", 2000 + 8 + 5000},
		{`{"in":3}`, "501", 0},
		{`{"in":3}`, "", 0},
		{`{"in":-3}`, "1", 0},
		{`{"in":1.5}`, "1", 0},
		{`{"in":"3"}`, "1", 0},
	} {
		job := &ingest.Job{Body: []byte(c.body), Header: nats.Header{}}
		if c.out != "" {
			job.Header.Set("X-Out", c.out)
		}
		if got, err := cost.Of(job); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s, %q: %d, %v, want %d", c.body, c.out, got, err, c.want)
		}
	}
	unsaid := ingest.Cost{{From: ingest.Source{Header: ingest.HeaderCost}, Default: 500}}
	if got, err := unsaid.Of(&ingest.Job{Cost: 1, Header: nats.Header{}}); got != 500 || err != nil {
		t.Errorf("a job without %s takes %d, %v, want the default", ingest.HeaderCost, got, err)
	}
	if got := cost.Usual(); got != 2000+2500+10 {
		t.Errorf("a usual job takes %d", got)
	}
	if got := cost.Guess(nats.Header{"X-Out": {"3"}}); got != 2000+2500+30 {
		t.Errorf("a job of which the headers are known takes %d", got)
	}
}

// TestCostsAreJudgedAtTheDoor checks that the intake refuses a job that a limit can never let through, for each place
// from which the limit takes its cost. A queued job is not judged again.
func TestCostsAreJudgedAtTheDoor(t *testing.T) {
	rule := plainRule
	rule.Costs = []ingest.CostBound{
		{Limit: "units", From: ingest.FromHeader("X-Units"), Most: 100},
		{Limit: "weight", From: ingest.FromHeader("Weir-Cost"), Most: 7},
		{Limit: "tokens", From: ingest.FromPointer("/a/n"), Most: 50},
	}
	for _, c := range []struct {
		units, body string
		ok          bool
	}{
		{"", `{"a":{"n":50}}`, true},
		{"weight 7", `{"a":{"n":50}}`, true},
		{"weight 8", `{"a":{"n":50}}`, false},
		{"100", `{"a":{"n":1}}`, true},
		{"101", `{"a":{"n":1}}`, false},
		{"0", `{"a":{"n":1}}`, false},
		{"-4", `{"a":{"n":1}}`, false},
		{"1.5", `{"a":{"n":1}}`, false},
		{"many", `{"a":{"n":1}}`, false},
		{"", `{"a":{"n":51}}`, false},
		{"", `{"a":{"n":"x"}}`, false},
		{"", `{"a":{"n":0}}`, false},
		{"", `{"a":{"n":-4}}`, false},
		{"", `{"a":{"n":1.5}}`, false},
		{"", `{"a":{"n":99999999999999999999}}`, false},
		{"", `{"a":{}}`, false},
		{"", `{}`, false},
		{"", `[]`, false},
		{"", ``, false},
		{"", `not JSON`, false},
		{"", `{"a":{"n":1}} {"a":{"n":1}}`, false},
	} {
		h := nats.Header{}
		if weight, ok := strings.CutPrefix(c.units, "weight "); ok {
			h["Weir-Cost"] = []string{weight}
		} else if c.units != "" {
			h["x-units"] = []string{c.units}
		}
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: h, Body: []byte(c.body)}, &rule, someNow)
		if (refusal == nil) != c.ok || refusal != nil && refusal.Code != ingest.Invalid {
			t.Errorf("units %q, body %s: %v", c.units, c.body, refusal)
		}
		if _, again := ingest.Restore(ingest.Message{Key: "k", Header: j.Header, Body: j.Body}, &rule, someNow); again != nil {
			t.Errorf("units %q, body %s, out of the queue: %v", c.units, c.body, again)
		}
	}
}
