package worker

import (
	"context"
	"fmt"

	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/move"
)

// mayBegin is asked when a lease has begun and before anything is called under it. A replica that was stopped or cut off goes on
// here: pauses and configurations that are in force on all other replicas by then must be in force on this one too.
func (w *Worker) mayBegin(ctx context.Context) error {
	if err := move.CheckStillHere(ctx, w.nc); err != nil {
		return err
	}
	if err := w.pauses.AwaitApplied(ctx); err != nil {
		return fmt.Errorf("the pauses: %w", err)
	}
	if err := control.AwaitConfigApplied(ctx, w.nc, w.follower.seen.Load); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	return nil
}
