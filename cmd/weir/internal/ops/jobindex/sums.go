package jobindex

import (
	"context"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/ops/spend"
	"weir/dispatcher/ledger"
)

// reachWait is how long a question waits for sums that are being built. After a start with a short ledger the sums are
// complete within this time.
const reachWait = 300 * time.Millisecond

// Spending returns what was spent, from the sums. The sums have every record that the ledger had when Spending was
// called, except the newest Account.Behind ones. Spending fails with ledger.ErrNoLedger if there is no ledger.
func (x *Index) Spending(ctx context.Context, o spend.Options) (account *spend.Account, err error) {
	behind, err := x.awaitSums(ctx, o.From())
	if err != nil {
		return nil, err
	}
	x.answering.Lock() // one at a time, because the groups of an account take memory
	defer x.answering.Unlock()
	x.mu.RLock()
	defer x.mu.RUnlock()
	account = x.sums.Account(o)
	account.Behind = behind
	return account, nil
}

// LimitUse returns how much of an api's limits was used in the last day. It answers from the sums, as Spending does.
func (x *Index) LimitUse(ctx context.Context, api *config.API, now time.Time) (*spend.Use, error) {
	behind, err := x.awaitSums(ctx, now.Add(-spend.UseSpan))
	if err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	use := x.sums.Use(api, now)
	use.Behind = behind
	return use, nil
}

// awaitSums waits until the sums have what the ledger has now, as List does. Then it waits until the sums go back to
// from, but at most reachWait. It returns how many records were not read in time.
func (x *Index) awaitSums(ctx context.Context, from time.Time) (behind uint64, err error) {
	behind = x.awaitEnds(ctx, x.views(true, false, false))[0]
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	for {
		x.mu.Lock()
		if x.grown == nil {
			x.grown = make(chan struct{})
		}
		grown, absent, reached := x.grown, x.calls.absent, !x.sums.Since(time.Now()).After(from)
		x.mu.Unlock()
		if absent {
			return 0, ledger.ErrNoLedger
		}
		if reached {
			return behind, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return behind, nil
		}
	}
}
