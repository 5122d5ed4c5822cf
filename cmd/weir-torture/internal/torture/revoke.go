package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/bucket/stream"
)

// revoked is the file that has the api answer 401 as long as it is there.
func (s *stage) revoked() string { return filepath.Join(s.o.Dir, "revoked") }

// revoke takes weir's credentials away for a while.
func (s *stage) revoke(ctx context.Context, last time.Duration) error {
	if err := os.WriteFile(s.revoked(), nil, 0o600); err != nil {
		return fmt.Errorf("revoke credentials: %w", err)
	}
	stream.Sleep(ctx, last)
	if err := os.Remove(s.revoked()); err != nil {
		return fmt.Errorf("give credentials back: %w", err)
	}
	return nil
}
