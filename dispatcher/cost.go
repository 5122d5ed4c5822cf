package dispatcher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

// Cost is how many units a job takes from a limit with this source: 1 when the source names nothing, or names a header
// that the job does not have.
func Cost(source bucket.CostSource, j *ingest.Job) (int64, error) {
	switch {
	case source.Constant > 0:
		return source.Constant, nil
	case strings.EqualFold(source.Header, ingest.HeaderCost):
		return j.Cost, nil
	case source.Header != "":
		for name, values := range j.Header {
			if strings.EqualFold(name, source.Header) && len(values) > 0 {
				return wholeCost(values[0], "header "+source.Header)
			}
		}
		return 1, nil
	case source.Pointer != "":
		value, err := ingest.Pointed(j.Body, source.Pointer)
		if err != nil {
			return 0, err
		}
		number, ok := value.(json.Number)
		if !ok {
			return 0, fmt.Errorf("what %s points to is not a number", source.Pointer)
		}
		return wholeCost(number.String(), source.Pointer)
	}
	return 1, nil
}

func wholeCost(text, where string) (int64, error) {
	cost, err := strconv.ParseInt(text, 10, 64)
	if err != nil || cost < 1 {
		return 0, fmt.Errorf("the cost in %s is not a whole number from 1", where)
	}
	return cost, nil
}

// actual is what a call really took from each shared limit: what the answer tells, and no money where none was charged.
// nil means as estimated.
func (t *task) actual(r response) []int64 {
	if t.costs == nil {
		return nil
	}
	actual := slices.Clone(t.costs)
	changed := false
	free := judge(t.terms.api, r, time.Now()).billed == deadletter.NotBilled
	for i, limit := range t.terms.api.Rules.Shared {
		cost := actual[i]
		if limit.Budget != nil && free {
			cost = 0
		} else if told, ok := settled(limit.Cost, r); ok {
			cost = told
		}
		changed = changed || cost != actual[i]
		actual[i] = cost
	}
	if !changed {
		return nil
	}
	return actual
}

// settled reads the units really used from an answer. What cannot be read leaves the estimate.
func settled(source bucket.CostSource, r response) (int64, bool) {
	text := ""
	switch {
	case r.status == 0 || r.cut:
		return 0, false
	case source.SettleHeader != "":
		text = strings.TrimSpace(r.header.Get(source.SettleHeader))
	case source.SettlePointer != "":
		value, err := ingest.Pointed(r.body, source.SettlePointer)
		if number, ok := value.(json.Number); err == nil && ok {
			text = number.String()
		}
	}
	units, err := strconv.ParseInt(text, 10, 64)
	return units, err == nil && units >= 0
}
