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
		Header: nats.Header{"X-Units": {"9"}, "x-low": {"2"}, "X-Bad": {"many"}, "X-Zero": {"0"}, "X-Minus": {"-1"}, "X-Empty": {}},
	}
	for _, c := range []struct {
		source ingest.CostSource
		want   int64 // 0: an error
	}{
		{ingest.CostSource{}, 1},
		{ingest.CostSource{Constant: 5}, 5},
		{ingest.CostSource{Header: "Weir-Cost"}, 7},
		{ingest.CostSource{Header: "weir-cost"}, 7},
		{ingest.CostSource{Header: "X-Units"}, 9},
		{ingest.CostSource{Header: "X-Low"}, 2},
		{ingest.CostSource{Header: "X-None"}, 1},
		{ingest.CostSource{Header: "X-Empty"}, 1},
		{ingest.CostSource{Header: "X-Bad"}, 0},
		{ingest.CostSource{Header: "X-Zero"}, 0},
		{ingest.CostSource{Header: "X-Minus"}, 0},
		{ingest.CostSource{Pointer: "/n"}, 12},
		{ingest.CostSource{Pointer: "/deep/0/n"}, 3},
		{ingest.CostSource{Pointer: "/text"}, 0},
		{ingest.CostSource{Pointer: "/zero"}, 0},
		{ingest.CostSource{Pointer: "/half"}, 0},
		{ingest.CostSource{Pointer: "/big"}, 0},
		{ingest.CostSource{Pointer: "/e"}, 0},
		{ingest.CostSource{Pointer: "/none"}, 0},
	} {
		got, err := c.source.Of(job)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v, want %d", c.source, got, err, c.want)
		}
	}
}

// TestCostsAreJudgedAtTheDoor checks that a job that a limit can never let pass is refused at the intake, wherever the
// limit takes its cost from. A queued job is not judged again.
func TestCostsAreJudgedAtTheDoor(t *testing.T) {
	rule := plainRule
	rule.Costs = []ingest.CostBound{
		{Limit: "units", From: ingest.CostSource{Header: "X-Units"}, Most: 100},
		{Limit: "weight", From: ingest.CostSource{Header: "Weir-Cost"}, Most: 7},
		{Limit: "tokens", From: ingest.CostSource{Pointer: "/a/n"}, Most: 50},
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
