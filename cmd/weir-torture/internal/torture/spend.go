package torture

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/plan"
)

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
			cents := int(math.Round(ratio * plan.LargeBudget * 100))
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
		if strings.HasPrefix(line, "weir_limit_used_ratio{") && strings.Contains(line, `limit="`+plan.BudgetName+`"`) {
			return strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		}
	}
	return 0, fmt.Errorf("no weir_limit_used_ratio of %s", plan.BudgetName)
}
