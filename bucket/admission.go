package bucket

import "fmt"

// Validate says what is wrong with an admission limit.
func (a Admission) Validate() error {
	if err := a.Rate.Validate(); err != nil {
		return err
	}
	switch a.Algorithm {
	case TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter:
	default:
		return fmt.Errorf("algorithm %q is not token_bucket, leaky_bucket, fixed_window, sliding_log or sliding_window", a.Algorithm)
	}
	if a.SoftPercent < 0 || a.SoftPercent > 1000 {
		return fmt.Errorf("soft %d%% is not within 0%% to 1000%%", a.SoftPercent)
	}
	return nil
}
