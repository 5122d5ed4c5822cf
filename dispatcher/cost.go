package dispatcher

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

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
