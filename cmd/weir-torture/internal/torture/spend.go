package torture

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket/stream"
)

// budgetName is the budget whose use is compared with the ledger.
const budgetName = "spend"

// spent returns the spending that weir reports when it has ended its calls, in hundredths of the currency. It returns
// nil if weir has no budget.
func (w *weir) spent(ctx context.Context) (*int, error) {
	if w.http == "" {
		return nil, nil //nolint:nilnil // nothing is counted
	}
	var ratio float64
	var err error
	for limit := time.Now().Add(startWithin); time.Now().Before(limit); {
		if !stream.Sleep(ctx, 2500*time.Millisecond) { // weir updates it once a second
			return nil, context.Cause(ctx)
		}
		if ratio, err = w.usedRatio(ctx); err == nil {
			cents := int(math.Round(ratio * largeBudget * 100))
			return &cents, nil
		}
	}
	return nil, fmt.Errorf("ask weir what it has spent: %w", err)
}

func (w *weir) usedRatio(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+httpToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // only read
	lines := bufio.NewScanner(io.LimitReader(res.Body, 16<<20))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "weir_limit_used_ratio{") && strings.Contains(line, `limit="`+budgetName+`"`) {
			return strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		}
	}
	return 0, fmt.Errorf("no weir_limit_used_ratio of %s", budgetName)
}

// judgeSpend compares the spending that weir reports with the ledger. weir must not report less, or a budget would be
// overspent. It may report more by the price of each call that was answered and not billed, and of each call that was
// under way when weir was killed and may never have arrived, once each. A kill while nothing was queued must add
// nothing.
func (e *Evidence) judgeSpend(r *Report) {
	if e.Spent == nil {
		return
	}
	r.Spent, r.Counted = *e.Spent, true
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		least, most := e.prices(a)
		if a.Billed {
			r.SpentLeast += least
		}
		r.SpentMost += most
	}
	if slices.ContainsFunc(e.Timeline, func(c inForce) bool { return c.terms.gone }) {
		r.SpentLeast = 0 // a budget that is removed for a while does not count the calls meanwhile
	}
	silent := r.Unknown - r.UnknownCalled
	for _, k := range e.Kills {
		if k.What != idle {
			silent += (len(e.Keys) + largeKeys + 2) * firstTerms(e.Options).inFlight
		}
	}
	for id, calls := range e.Ends.Calls {
		silent += max(0, calls-e.arrived(id)) // calls that the network lost
	}
	price := 0
	for _, c := range e.Timeline {
		price = max(price, c.terms.price)
	}
	r.SpentMost += silent * price
}

// arrived returns how many calls of a job reached the api.
func (e *Evidence) arrived(job string) int {
	if e.reached == nil {
		e.reached = map[string]int{}
		for _, a := range e.calls() {
			e.reached[jobOf(&a)]++
		}
	}
	return e.reached[job]
}

func cents(n int) float64 { return float64(n) / 100 }
