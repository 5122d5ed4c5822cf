package dispatcher

import (
	"testing"

	"github.com/nats-io/nats.go"
	"weir/bucket"
	"weir/ingest"
)

func TestCost(t *testing.T) {
	job := &ingest.Job{
		Cost: 7, Body: []byte(`{"n":12,"deep":[{"n":3}],"text":"4","zero":0,"half":1.5,"big":99999999999999999999,"e":1e2}`),
		Header: nats.Header{"X-Units": {"9"}, "x-low": {"2"}, "X-Bad": {"many"}, "X-Zero": {"0"}, "X-Minus": {"-1"}, "X-Empty": {}},
	}
	for _, c := range []struct {
		source bucket.CostSource
		want   int64 // 0: an error
	}{
		{bucket.CostSource{}, 1},
		{bucket.CostSource{Constant: 5}, 5},
		{bucket.CostSource{Header: "Weir-Cost"}, 7},
		{bucket.CostSource{Header: "weir-cost"}, 7},
		{bucket.CostSource{Header: "X-Units"}, 9},
		{bucket.CostSource{Header: "X-Low"}, 2},
		{bucket.CostSource{Header: "X-None"}, 1},
		{bucket.CostSource{Header: "X-Empty"}, 1},
		{bucket.CostSource{Header: "X-Bad"}, 0},
		{bucket.CostSource{Header: "X-Zero"}, 0},
		{bucket.CostSource{Header: "X-Minus"}, 0},
		{bucket.CostSource{Pointer: "/n"}, 12},
		{bucket.CostSource{Pointer: "/deep/0/n"}, 3},
		{bucket.CostSource{Pointer: "/text"}, 0},
		{bucket.CostSource{Pointer: "/zero"}, 0},
		{bucket.CostSource{Pointer: "/half"}, 0},
		{bucket.CostSource{Pointer: "/big"}, 0},
		{bucket.CostSource{Pointer: "/e"}, 0},
		{bucket.CostSource{Pointer: "/none"}, 0},
	} {
		got, err := Cost(c.source, job)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v, want %d", c.source, got, err, c.want)
		}
	}
}
