package config

import "weir/bucket"

const (
	mostAdmit = 16
	mostSoft  = 1000 // percent
)

// readAdmit reads the limits that are checked when the intake receives a job.
func readAdmit(v value) []bucket.Admission {
	items := v.list(mostAdmit)
	admit := make([]bucket.Admission, 0, len(items))
	for _, item := range items {
		if f, ok := item.fields("rate", "burst", "algorithm", "soft", "elastic"); ok {
			admit = append(admit, readAdmission(f))
		}
	}
	return admit
}

// readAdmission reads one of them. A bucket's burst is the rate's count unless the file says otherwise: as many jobs
// may arrive together as may arrive per period. A window's burst is its count, because windows have no burst.
func readAdmission(f fields) bucket.Admission {
	f.require("rate", rateFix)
	a := bucket.Admission{
		Rate: read(f, "rate", bucket.Rate{}, ParseRate),
		Algorithm: read(f, "algorithm", bucket.SlidingWindowCounter, oneOf(bucket.TokenBucket, bucket.LeakyBucket,
			bucket.FixedWindow, bucket.SlidingLog, bucket.SlidingWindowCounter)),
		SoftPercent: read(f, "soft", 0, percentIn(mostSoft)),
		Elastic:     read(f, "elastic", false, yesOrNo),
	}
	if a.Algorithm != bucket.TokenBucket && a.Algorithm != bucket.LeakyBucket {
		f.ignored("to "+string(a.Algorithm), "burst")
	}
	a.Rate.Burst = read(f, "burst", a.Rate.Count, wholeIn(1, mostBurst))
	return a
}
