package jobindex

import (
	"context"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/ops/spend"
	"weir/dispatcher/ledger"
)

// reachWait is how long a question waits for sums that are being built: after a start with a short ledger they are
// complete by then.
const reachWait = 300 * time.Millisecond

// Spending returns what was spent, by the sums: they have what the ledger had when the question came. It fails with
// ledger.ErrNoLedger.
func (x *Index) Spending(ctx context.Context, o spend.Options) (account *spend.Account, err error) {
	behind, err := x.awaitSums(ctx, o.From())
	if err != nil {
		return nil, err
	}
	x.answering.Lock() // the groups of one account at a time take memory
	defer x.answering.Unlock()
	x.mu.RLock()
	defer x.mu.RUnlock()
	account = x.sums.Account(o)
	account.Behind = behind
	return account, nil
}

// LimitUse returns how the limits of an api were used in the last day, as Spending does.
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

// awaitSums waits until the sums have what the ledger has now, as List does, and shortly until they go back to from. It
// returns how many records were left.
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
