package limitstate

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// spentWithin bounds the reading of one api's ledger.
const spentWithin = 15 * time.Second

// Spent is a quota or budget that a planned configuration would find used up.
type Spent struct {
	API    string    `json:"api"`
	Limit  string    `json:"limit"`
	Used   int64     `json:"used"`
	Count  int64     `json:"count"`
	Unit   Unit      `json:"unit"`
	Until  time.Time `json:"until"` // of a sliding quota: at the latest
	Buries bool      `json:"ends"`  // jobs become dead letters instead of waiting
}

// Text says that the limit is used up, and the effect on the api.
func (s *Spent) Text() string {
	what := "nothing is called until "
	if s.Buries {
		what = "jobs become dead letters (over_budget) until "
	}
	return fmt.Sprintf("limit %s of %s: %s of %s are used already: %s%s", s.Limit, s.API, Amount(s.Used, s.Unit), Amount(s.Count, s.Unit), what,
		cli.ClockTime(s.Until))
}

// SpentAlready returns the quotas and budgets that are new in after, or whose number changes, and that are used up
// according to the ledger. It may block for 15 seconds for each api.
func SpentAlready(ctx context.Context, js jetstream.JetStream, before, after *config.Config, now time.Time) ([]Spent, error) {
	var found []Spent
	if before == nil {
		return nil, nil
	}
	accounted := map[string]bool{}
	for i := range after.APIs {
		api := &after.APIs[i]
		former, known := before.API(api.Name)
		if !known {
			continue // calls under an earlier configuration do not count
		}
		spent, err := spentOf(ctx, js, former, api, accounted, now)
		if err != nil {
			return found, fmt.Errorf("whether the limits of %s are used up already is not known: %w", api.Name, err)
		}
		found = append(found, spent...)
	}
	return found, nil
}

// spentOf is SpentAlready for one api. accounted names the account limits that were checked with an earlier api.
// spentOf adds to accounted the account limits that it checks.
func spentOf(
	ctx context.Context, js jetstream.JetStream, former, api *config.API, accounted map[string]bool, now time.Time,
) (found []Spent, err error) {
	ctx, cancel := context.WithTimeout(ctx, spentWithin)
	defer cancel()
	var limits []bucket.Limit
	since := map[string]time.Time{}
	for _, l := range api.Rules.Shared {
		if q := quotaOf(&l); q == nil || l.Shadow || !changed(former, api, &l) || accounted[l.Name] {
			continue
		}
		if l.Account != "" {
			accounted[l.Name] = true
		}
		limits = append(limits, l)
		since[l.Name] = periodStart(api.Rules, &l, bucket.MicrosOf(now)).Time()
		if counted(former, l.Name) != nil {
			continue
		}
		extent, err := ledger.ExtentOf(ctx, js)
		if err != nil {
			return nil, err
		}
		// A new limit begins with the calls that the ledger still has.
		if least := extent.Begins.Add(usageMargin); least.After(since[l.Name]) {
			since[l.Name] = least
		}
	}
	if len(limits) == 0 {
		return nil, nil
	}
	used, err := readUsage(ctx, js, api.Rules, api.Name, limits, since)
	if err != nil {
		return nil, err
	}
	for i := range limits {
		l := &limits[i]
		s := Spent{API: api.Name, Limit: l.Name, Used: used[l.Name], Count: api.Rules.By(l).Lowered(quotaOf(l).Count), Unit: InUnits}
		next := int64(1)
		if l.Budget != nil {
			s.Unit, s.Buries, next = InMoney, l.Budget.OnExhausted == bucket.DeadLetter, max(1, int64(api.Price))
		}
		if s.Used+next <= s.Count {
			continue
		}
		s.Until = now.Add(quotaOf(l).Length())
		if quotaOf(l).Window != bucket.Sliding {
			_, end := quotaOf(l).Period(bucket.MicrosOf(now))
			s.Until = end.Time()
		}
		found = append(found, s)
	}
	return found, nil
}

// changed reports whether a quota or budget is new, has another number than before, or only watched before. A new limit
// also counts the earlier calls of its period.
func changed(former, api *config.API, l *bucket.Limit) bool {
	was := counted(former, l.Name)
	return was == nil || was.Shadow || former.Rules.By(was).Lowered(quotaOf(was).Count) != api.Rules.By(l).Lowered(quotaOf(l).Count)
}

// counted returns the api's quota or budget with this name, nil if it has none.
func counted(api *config.API, name string) *bucket.Limit {
	for i := range api.Rules.Shared {
		if l := &api.Rules.Shared[i]; l.Name == name && quotaOf(l) != nil {
			return l
		}
	}
	return nil
}
