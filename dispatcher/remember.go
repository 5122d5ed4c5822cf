package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/dispatcher/ledger"
)

// Remember makes the dispatcher know the newest results and records that stand in streams which do not know them
// themselves: after they were restored. It must be called before Run.
func (d *Dispatcher) Remember(ctx context.Context) error {
	since := time.Now().Add(-ledger.TailAge)
	err := errors.Join(
		d.results.Remember(ctx, d.opts.JetStream, ledger.ResultsStream, since),
		d.calls.Remember(ctx, d.opts.JetStream, ledger.CallsStream, since))
	if err != nil {
		return fmt.Errorf("results and ledger: %w", err)
	}
	return nil
}
