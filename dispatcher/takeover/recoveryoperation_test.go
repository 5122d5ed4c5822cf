package takeover

import (
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// Mistakes about operations.
const (
	submitsAgain        plantedMistake = "a job that the api has accepted is called again"
	endsWithoutIntent   plantedMistake = "an operation ends without an intent"
	operationUnbarred   plantedMistake = "a letter of an operation is stored without a bar against a late result"
	pollsUnmarked       plantedMistake = "a found job is polled, and only an old record tells of its operation"
	dropsIntentUnmarked plantedMistake = "an accepted call's intent is deleted before its record and the operation's mark are stored"
	endsAsTheCall       plantedMistake = "the record of an operation's end has the id of its call's"
	endNotLookedUp      plantedMistake = "a found job is polled without a look for an end that is older than what was read"
)

var operationMistakes = []plantedMistake{
	submitsAgain, endsWithoutIntent, operationUnbarred, pollsUnmarked, dropsIntentUnmarked, endsAsTheCall, endNotLookedUp,
}

// keepOperation stores the mark of the job's operation, and then deletes the call's intent and the former marks.
func (w *jobsWay) keepOperation() bool {
	former := w.marks
	if !w.keepMark(queue.RetryMark{Operation: w.operation}) {
		return false
	}
	w.dropIntents()
	for _, seq := range former {
		w.o.delete(seq)
	}
	w.marks, w.lost, w.flown = w.marks[len(former):], false, false
	return true
}

// polls polls the job's operation until it has ended, or an operator cancels it.
func (w *jobsWay) polls() {
	m := w.o.m
	for {
		if m.one(4) { // an operator cancels it
			w.endOperation(string(deadletter.Cancelled))
			return
		}
		end := ""
		if !w.o.right || !w.yield(&modelWrite{arrive: func() { end = m.poll(w.mj) }}) {
			return
		}
		if end != "" {
			w.endOperation(end)
			return
		}
	}
}

// endOperation ends the job in the way in which its operation has ended.
func (w *jobsWay) endOperation(end string) {
	m := w.o.m
	if m.bug != endsWithoutIntent {
		i := queue.Intent{Seq: w.mj.seq, Call: w.calls, Accepted: w.mj.accepted, Epoch: w.o.epoch}
		if !w.yield(&modelWrite{intent: &i}) || w.refused {
			return // another owner has the partition
		}
	}
	if end == ledger.Done {
		duplicate := false
		if !w.persist(func() { duplicate = m.storeResult(w.mj, w.calls) }) {
			return
		}
		if duplicate && !w.mj.result {
			w.bury(deadletter.Unknown, w.endRecord(string(deadletter.Unknown)))
			return
		}
	} else {
		if m.bug != operationUnbarred && !w.persist(func() { m.bar(w.mj) }) {
			return
		}
		if !w.mj.result {
			w.bury(deadletter.Reason(end), w.endRecord(end))
			return
		}
		end = ledger.Done // an earlier owner has stored its result
	}
	if w.keepRecord(w.endRecord(end)) {
		w.finish()
	}
}

// endRecord is the record of the end of the job's operation.
func (w *jobsWay) endRecord(end string) *ledger.Record {
	return &ledger.Record{
		Call: w.calls, Attempt: w.attempts, Outcome: end, Billed: deadletter.BilledYes, Operation: w.operation, Polled: true, Final: true,
	}
}
