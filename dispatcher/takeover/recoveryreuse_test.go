package takeover

import (
	"fmt"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

func reusedID(j *modelJob) string { return fmt.Sprintf("reused.%d", j.seq) }

// storeReused stores another job's answer as the job's result.
func (m *recoveryModel) storeReused(j *modelJob) (duplicate bool) {
	return m.storeOnce(reusedID(j), func() {
		if j.result || len(j.letters) > 0 {
			m.fail("job %d has ended, and now gets another job's answer", j.seq)
		}
		if len(j.called) > 0 {
			m.fail("job %d was called, and now gets another job's answer", j.seq)
		}
		j.result, j.resultOf, j.resultAt = true, 0, m.clock
	})
}

// reuse ends the job with another job's answer.
func (w *jobsWay) reuse() {
	m := w.o.m
	if m.bug != reusesUnmarked && !w.keepMark(queue.RetryMark{Ends: queue.EndsReused}) {
		return
	}
	duplicate := false
	if !w.persist(func() { duplicate = m.storeReused(w.mj) }) {
		return
	}
	if duplicate && !w.mj.result {
		w.mustCall = true
		w.live()
		return
	}
	if w.keepRecord(reusedRecord()) {
		w.finish()
	}
}

func reusedRecord() *ledger.Record {
	return &ledger.Record{Outcome: ledger.Reused, Billed: deadletter.NotBilled, Final: true}
}
