package config

import "weir/bucket"

const (
	mostAdmit = 16
	mostSoft  = 1000 // percent
)

// admission returns the fields of a limit that the intake checks when a job arrives. The default burst of a bucket is
// the rate's count: one period's jobs may arrive together. A window has no burst of its own, so its burst is its count.
func admission(a *bucket.Admission) section {
	return section{
		fields: []field{
			{name: "rate", is: one(&a.Rate, rate()), needs: rateFix, means: "how many jobs of a key weir accepts"},
			{
				name: "algorithm", or: string(bucket.SlidingWindowCounter),
				is: one(&a.Algorithm, word(bucket.TokenBucket, bucket.LeakyBucket, bucket.FixedWindow, bucket.SlidingLog,
					bucket.SlidingWindowCounter)),
				means: "how weir counts them ([limits](limits.md))",
			},
			{
				name: "burst", is: one(&a.Rate.Burst, whole[int64](1, mostBurst)),
				otherwise: "the count of `rate`", absent: func() { a.Rate.Burst = a.Rate.Count },
				means: "for `token_bucket` and `leaky_bucket`: how many jobs weir accepts together",
			},
			{
				name: "soft", is: one(&a.SoftPercent, percent(0, mostSoft)), or: "0%",
				means: "how much more weir accepts and marks before it refuses a job",
			},
			{name: "elastic", is: one(&a.Elastic, yes()), or: "false", means: "`true`: a key may borrow what the others leave unused"},
		},
		check: func(f fields) {
			if a.Algorithm != bucket.TokenBucket && a.Algorithm != bucket.LeakyBucket {
				f.ignored("to "+string(a.Algorithm), "burst")
			}
		},
	}
}
