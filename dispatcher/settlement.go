package dispatcher

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
)

// settlements remembers, for each limit, the most units that any answer of an api reported. A call whose answer reports
// none is charged that many, because it may have used them. It is safe for concurrent use.
type settlements struct {
	mu     sync.Mutex // guards what follows
	most   map[string]int64
	silent bool // the last answer that should have reported the units did not
}

// actual returns the units that a call really took from each shared limit: those that the answer reports, 0 from a
// quota if nothing was sent, and 0 from a budget if the call was not billed. nil means that the estimate is right.
// silent names the limits whose units the answer should have reported and did not.
func (w *caller) actual(j *lane.Job, r httpcall.Response) (actual []int64, silent []string) {
	if j.Costs == nil {
		return nil, nil
	}
	actual = slices.Clone(j.Costs)
	free := httpcall.Judge(j.Terms.API, r, time.Now()).Billed == deadletter.NotBilled
	w.settlements.mu.Lock()
	for i, limit := range j.Terms.API.Rules.Shared {
		told, ok := settled(limit.Cost, r)
		switch {
		case limit.Budget != nil && free, limit.Quota != nil && !r.Sent: // as in the ledger
			actual[i] = 0
		case ok:
			actual[i] = told
			if w.settlements.most == nil {
				w.settlements.most = map[string]int64{}
			}
			w.settlements.most[limit.Name] = max(w.settlements.most[limit.Name], told)
		case !free && limit.Cost.Settles():
			actual[i] = max(actual[i], w.settlements.most[limit.Name])
			silent = append(silent, limit.Name)
		}
	}
	news := len(silent) > 0 && !w.settlements.silent
	w.settlements.silent = len(silent) > 0 || free && w.settlements.silent
	w.settlements.mu.Unlock()
	if len(silent) > 0 {
		w.Env.Metrics.Unsettled.WithLabelValues(w.Name).Inc()
	}
	if news {
		w.LogOf(j).Warn("an answer does not report the units of its call: the call is charged its estimate, or the most that any answer has reported",
			"limits", silent, "status", r.Status)
	}
	if slices.Equal(actual, j.Costs) {
		return nil, silent
	}
	return actual, silent
}

// settled reads from an answer the units that the call used. It reports false if it cannot read them.
func settled(source bucket.CostSource, r httpcall.Response) (int64, bool) {
	switch {
	case r.Status == 0 || r.Cut:
		return 0, false
	case source.SettlePointer != "":
		units, ok := r.Units[source.SettlePointer]
		return units, ok
	}
	units, err := strconv.ParseInt(strings.TrimSpace(r.Header.Get(source.SettleHeader)), 10, 64)
	return units, err == nil && units >= 0 && source.SettleHeader != ""
}
