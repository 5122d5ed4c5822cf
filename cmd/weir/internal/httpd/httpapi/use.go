package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/spend"
)

// use answers how the limits of an api were used in the last day, by the ledger.
func (s *spending) use(ctx context.Context, r *request) (any, error) {
	api, err := s.api(r)
	if err != nil {
		return nil, err
	}
	return spend.UseOf(ctx, s.Connection, api, r.asked)
}
