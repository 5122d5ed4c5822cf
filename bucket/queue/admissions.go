package queue

import (
	"time"

	"weir/bucket"
	"weir/ingest"
)

// admissions holds what one admitted job counted against its admission limits.
type admissions struct {
	job       *ingest.Job
	admitters []*bucket.Admitter
	counted   []bucket.Admittance
}

// admitAll asks one limit after the other. If a limit refuses, admitAll takes back what the job counted against the
// earlier limits, and returns the refusal. Without limits it returns nil and nil.
func admitAll(j *ingest.Job, admitters []*bucket.Admitter) (admitted *admissions, no *bucket.Admittance) {
	if len(admitters) == 0 {
		return nil, nil
	}
	admitted = &admissions{job: j, admitters: admitters}
	now := bucket.MicrosOf(time.Now())
	for _, x := range admitters {
		a := x.Admit(j.Key, now, j.Cost)
		if a.Verdict == bucket.Refused {
			admitted.takeBack()
			return nil, &a
		}
		admitted.counted = append(admitted.counted, a)
		j.OverSoft = j.OverSoft || a.Verdict == bucket.OverSoft
	}
	return admitted, nil
}

// answered wraps done. If the job is refused or a duplicate, it takes back what the limits counted for the job.
// Otherwise it notes in the receipt whether the job is over a soft limit.
func (l *admissions) answered(done func(ingest.Receipt, *ingest.Refusal)) func(ingest.Receipt, *ingest.Refusal) {
	return func(receipt ingest.Receipt, refusal *ingest.Refusal) {
		if refusal != nil || receipt.Duplicate {
			l.takeBack()
		} else {
			receipt.OverSoft = l.job.OverSoft
		}
		done(receipt, refusal)
	}
}

func (l *admissions) takeBack() {
	for i, a := range l.counted {
		l.admitters[i].TakeBack(l.job.Key, a, l.job.Cost)
	}
}
