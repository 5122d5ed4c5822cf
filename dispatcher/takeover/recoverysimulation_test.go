package takeover

import (
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// A jobsWay copies the order of writes of the package settle, found.go, lostcall.go and loneresult.go, and what they
// do between their writes. The real code reads the histories and decides: replay.history, jobHistory.found,
// recovery.Judge and Mend, and doubt.

// persist sends a write, and returns when it is acknowledged. It reports false if the right to write is gone.
func (w *jobsWay) persist(arrive func()) bool {
	if !w.o.right && w.o.m.bug != writesWithoutRight {
		return false
	}
	return w.yield(&modelWrite{arrive: arrive})
}

// live calls the job until it has ended.
func (w *jobsWay) live() {
	m := w.o.m
	if m.packs != nil {
		w.pool()
		return
	}
	for {
		if m.one(12) {
			w.endWithout(deadletter.Expired)
			return
		}
		if m.one(4) && w.calls == 0 && !w.mustCall && w.doubt.Charged() == deadletter.NotBilled {
			w.reuse()
			return
		}
		if !w.intend() {
			return // another owner has the partition
		}
		switch {
		case m.one(8): // it was made ready too early
			w.dropIntents()
			continue
		case m.one(12):
			w.endWithout(deadletter.Expired)
			return
		}
		out, made := w.call()
		if !made || !w.conclude(out) {
			return
		}
	}
}

// intend stores an intent of the next call. It reports false if the stream refuses it.
func (w *jobsWay) intend() bool {
	i := w.nextIntent()
	return w.yield(&modelWrite{intent: &i}) && !w.refused
}

// nextIntent returns the intent of the job's next call.
func (w *jobsWay) nextIntent() queue.Intent {
	m := w.o.m
	m.entries++
	w.entry = m.entries
	m.notes[w.entry] = &modelNote{of: w.o, state: recorder.Prepared}
	return queue.Intent{
		Seq: w.mj.seq, Call: w.calls + 1, Deaths: w.deaths, Idempotency: w.identity(), Accepted: w.mj.accepted,
		Epoch: w.o.epoch, Entry: w.entry, Pack: w.in,
	}
}

// dropIntents deletes the intent messages that no other job needs.
func (w *jobsWay) dropIntents() {
	for _, mark := range w.intents {
		if mark.Users--; mark.Users == 0 {
			w.o.delete(mark.Seq)
		}
	}
	w.intents = nil
	w.settle(w.entry)
}

// settle notes in the flight recorder that an entry's call needs no notes any more.
func (w *jobsWay) settle(entry uint64) {
	if n := w.o.m.notes[entry]; n != nil && n.of == w.o {
		n.state = recorder.Settled
	}
}

// call makes the job's next call. It reports false if it was not made.
func (w *jobsWay) call() (out httpcall.Outcome, made bool) {
	m := w.o.m
	if !w.o.right {
		return out, false
	}
	w.calls++
	w.settle(w.adopted)
	note := m.notes[w.entry]
	note.state = recorder.Begun
	call := w.calls
	if r := m.recordOf(w.mj, call); r != nil && r.Stored.Before(m.at(w.o.began)) && w.mj.called[call] > 0 && !w.mj.untraced {
		m.fail("call %d of job %d is made again, and had a record before its owner took over", call, w.mj.seq)
	}
	if !w.yield(&modelWrite{arrive: func() { out = m.process(w.mj, call) }}) {
		return out, false
	}
	note.state, note.out = recorder.Answered, out
	return out, true
}

// conclude stores a call's outcome, and reports whether another call follows.
func (w *jobsWay) conclude(out httpcall.Outcome) (again bool) {
	const most = 4
	m := w.o.m
	w.attempts++
	w.doubt.Add(out.Billed, w.identity())
	w.bind(w.in)
	w.deaths = 0
	if out.Verdict == httpcall.Again && w.attempts >= most {
		out.Verdict, out.Reason = httpcall.Dead, deadletter.Exhausted
	}
	switch out.Verdict {
	case httpcall.Delivered:
		w.keepResult(out)
	case httpcall.Dead:
		w.bury(out.Reason, w.record(out))
	case httpcall.Submitted:
		if w.operation = out.Operation; m.bug == dropsIntentUnmarked {
			w.dropIntents()
		}
		if w.keepRecord(w.record(out)) && w.keepOperation() {
			w.polls()
		}
	default:
		return w.again(w.record(out))
	}
	return false
}

func (w *jobsWay) record(out httpcall.Outcome) *ledger.Record {
	return &ledger.Record{
		Operation: out.Operation,
		Call:      w.calls, Attempt: w.attempts, Outcome: out.Name(), Billed: out.Billed, Idempotency: w.identity(), Pack: w.in,
		Final: out.Verdict == httpcall.Delivered || out.Verdict == httpcall.Dead,
	}
}

func (w *jobsWay) keepRecord(c *ledger.Record) bool {
	return w.persist(func() { w.o.m.storeRecord(w.o, w.mj, *c) })
}

func (w *jobsWay) keepResult(out httpcall.Outcome) {
	m, call := w.o.m, w.calls
	if m.bug == recordsBeforeResult && !w.keepRecord(w.record(out)) {
		return
	}
	duplicate := false
	if !w.persist(func() { duplicate = m.storeResult(w.mj, call) }) {
		return
	}
	if duplicate && !w.mj.result && m.bug != barTakenForResult {
		w.bury(deadletter.Unknown, w.record(httpcall.Unknown(deadletter.BilledYes, "barred")))
		return
	}
	if m.bug == deletesBeforeRecord {
		w.finish()
	}
	if w.keepRecord(w.record(out)) {
		w.finish()
	}
}

func (w *jobsWay) bury(reason deadletter.Reason, c *ledger.Record) {
	duplicate := false
	if !w.persist(func() { duplicate = w.o.m.storeRecord(w.o, w.mj, *c) }) {
		return
	}
	if !duplicate || w.keepMark(queue.RetryMark{Ends: string(reason)}) {
		w.buryLetter(reason)
	}
}

func (w *jobsWay) buryLetter(reason deadletter.Reason) {
	if w.o.m.bug == deletesBeforeLetter {
		w.finish()
	}
	if w.persist(func() { w.o.m.storeLetter(w.o, w.mj, reason) }) {
		w.finish()
	}
}

// endWithout ends the job without a call.
func (w *jobsWay) endWithout(reason deadletter.Reason) {
	if w.o.m.bug != buriesBeforeMark && !w.keepMark(queue.RetryMark{Ends: string(reason)}) {
		return
	}
	w.buryLetter(reason)
}

func (w *jobsWay) keepMark(mark queue.RetryMark) bool {
	m := w.o.m
	mark.Seq, mark.Accepted, mark.Epoch, mark.Calls, mark.Attempts = w.mj.seq, w.mj.accepted, w.o.epoch, w.calls, w.attempts
	if mark.Ends != "" {
		mark.Operation = w.operation
	}
	mark.Billed, mark.Idempotency, mark.Deaths, mark.Pack = string(w.doubt.Billed), w.doubt.Identity, w.deaths, w.bond
	return w.persist(func() { w.marks = append(w.marks, m.store(modelMessage{mark: &mark})) })
}

func (w *jobsWay) again(c *ledger.Record) bool {
	if w.o.m.bug == dropsIntentFirst {
		w.dropIntents()
	}
	return w.keepRecord(c) && w.keepRetry()
}

// keepRetry stores the mark of the job's last call, and then deletes the call's intent and the former marks.
func (w *jobsWay) keepRetry() bool {
	former := w.marks
	if !w.keepMark(queue.RetryMark{}) {
		return false
	}
	w.dropIntents()
	for _, seq := range former {
		w.o.delete(seq)
	}
	w.marks, w.lost, w.flown = w.marks[len(former):], false, false
	return true
}

// finish has the job's message deleted, and then its markers.
func (w *jobsWay) finish() {
	markers := func() {
		w.dropIntents()
		for _, seq := range w.marks {
			w.o.delete(seq)
		}
		w.marks = nil
	}
	w.settle(w.adopted)
	if w.o.m.bug == deletesInAnyOrder {
		w.o.delete(w.mj.seq)
		markers()
		return
	}
	w.o.deleteThen(w.mj.seq, markers)
}

// resume continues a job that was found with a history.
func (w *jobsWay) resume(h jobHistory) {
	m := w.o.m
	w.recall(h)
	fate := m.judge(w.found)
	if w.found.Unrecorded() && fate == recovery.EndsByLast {
		w.mj.unlogged++
	}
	if !w.follow(fate) {
		if fate == recovery.Polls {
			w.polls()
			return
		}
		w.live()
		return
	}
	switch fate {
	case recovery.Forgoes:
		if w.o.started > 0 && w.mark.stored.Sub(m.at(0)) < w.o.started && w.lookUp(w.mark.stored) {
			fate = m.judge(w.found)
		}
	case recovery.Waits, recovery.Answered, recovery.Lost, recovery.Polls:
		if w.look && w.lookUp(w.intent.Stored) {
			fate = m.judge(w.found)
		}
	default:
	}
	w.settleFound(fate)
}

// judge is recovery.Judge, with or without a mistake.
func (m *recoveryModel) judge(f recovery.Found) recovery.Fate {
	switch m.bug {
	case ignoresIntents:
		f.Intended = 0
	case ignoresOverruling:
		f.Overruled = false
	case submitsAgain:
		f.Submitted = false
	default:
	}
	return recovery.Judge(f)
}

func (w *jobsWay) recall(h jobHistory) {
	m := w.o.m
	if h.last != nil {
		w.last = *h.last
	}
	if h.mark != nil {
		w.mark = *h.mark
		w.marks = []uint64{w.mark.seq}
	}
	w.calls, w.attempts = max(w.mark.Calls, w.last.Call), max(w.mark.Attempts, w.last.Attempt)
	w.doubt.Recall(deadletter.Billed(w.mark.Billed), w.mark.Idempotency)
	w.doubt.Recall(w.last.Billed, w.last.Identity)
	w.bind(w.mark.Pack, w.last.Pack)
	if w.mark.Calls >= w.last.Call {
		w.deaths = w.mark.Deaths
	}
	if m.bug == forgetsPack {
		w.bond = nil
	}
	w.found = h.found()
	if w.last.Call == w.found.Recorded {
		w.operation = w.last.Operation
	}
	if w.mark.Calls == w.found.Recorded && w.operation == nil {
		w.operation = w.mark.Operation
	}
	if w.intent = h.intent; w.intent == nil {
		return
	}
	w.intents = []*lane.IntentMark{w.intent.Mark}
	w.calls = max(w.calls, w.intent.Call-1)
	w.look = w.o.started > 0 && w.intent.Stored.Sub(m.at(0)) < w.o.started
	n := m.notes[w.intent.Entry]
	if n != nil && n.of.ended && (!n.of.cut || m.bug == believesAfterCut) && n.state != recorder.Settled {
		w.found.Noted = n.state
	}
}

func (w *jobsWay) follow(fate recovery.Fate) (more bool) {
	m := w.o.m
	switch fate {
	case recovery.Waits:
		unmarked := w.last.Call > w.mark.Calls && m.bug != waitsUnmarked
		if w.found.Intended <= w.found.Recorded {
			return unmarked
		}
		m.notes[w.intent.Entry].of = w.o // this process notes again that the call has not begun
		w.adopted = w.intent.Entry
		if !w.look && !unmarked {
			w.dropIntents()
			return false
		}
	case recovery.Polls:
		if w.found.Intended > w.found.Recorded {
			m.notes[w.intent.Entry].of = w.o // this process notes again that the call has not begun
			if w.adopted = w.intent.Entry; !w.look && w.mark.Operation != nil {
				w.dropIntents()
			}
		}
		if w.mark.Operation == nil && m.bug == pollsUnmarked {
			w.dropIntents()
			return w.look
		}
		return w.mark.Operation == nil || w.look && m.bug != endNotLookedUp
	case recovery.HasResult:
		w.lost = !w.found.Uncalled() && w.found.Intended > w.found.Recorded
	case recovery.EndsByMark:
		w.last = ledger.LastCall{Outcome: w.mark.Ends}
	case recovery.Answered:
		w.operation = nil
		w.lost, w.flown, w.calls, w.in = true, true, w.intent.Call, w.intent.Pack
	case recovery.Lost:
		w.operation = nil
		w.lost, w.calls, w.attempts, w.in = true, w.intent.Call, w.attempts+1, w.intent.Pack
		w.deaths = w.intent.Deaths + 1
	default:
	}
	return true
}

// lookUp looks up what is stored of the job since its newest intent, or its mark, and reports whether it found anything.
func (w *jobsWay) lookUp(since time.Time) bool {
	m := w.o.m
	l := recovery.LookedUp{Result: w.mj.result, Reused: w.mj.result && w.mj.resultOf == 0}
	if c := m.newest(w.mj, since.Sub(m.at(0))); c != nil {
		l.Recorded, l.Ended = c.Call, c.Final
		if l.Submitted = c.Operation != nil && !c.Final; c.Operation != nil {
			w.operation = c.Operation
		}
		w.last = c.Last()
		l.Complete = isComplete(&w.last)
		w.doubt.Recall(c.Billed, c.Idempotency)
		w.bind(w.bond, c.Pack)
	}
	w.found = w.found.With(l)
	return l != recovery.LookedUp{}
}

func (w *jobsWay) settleFound(fate recovery.Fate) {
	m := w.o.m
	switch fate {
	case recovery.Waits:
		if w.last.Call >= w.calls {
			w.lost, w.flown, w.calls, w.attempts, w.deaths = false, false, w.last.Call, w.last.Attempt, 0
		}
		if w.last.Call > w.mark.Calls && m.bug != waitsUnmarked {
			if !w.keepRetry() {
				return
			}
		} else {
			w.dropIntents()
		}
		w.live()
	case recovery.Polls:
		if w.last.Call >= w.calls && w.lost {
			w.lost, w.flown, w.calls, w.attempts, w.deaths = false, false, w.last.Call, w.last.Attempt, 0
		}
		if w.mark.Operation == nil && m.bug != pollsUnmarked && !w.keepOperation() {
			return
		}
		if w.found.Intended > w.found.Recorded {
			w.dropIntents()
		}
		w.polls()
	case recovery.HasResult:
		w.endWithResult()
	case recovery.EndsByMark, recovery.EndsByLast:
		if w.last.Outcome == ledger.Done || w.last.Outcome == ledger.Reused {
			w.finish()
			return
		}
		w.buryLetter(deadletter.Reason(w.last.Outcome))
	case recovery.Answered:
		if out := m.notes[w.intent.Entry].out; w.conclude(out) {
			w.live()
		}
	case recovery.Lost:
		w.endLost()
	case recovery.Forgoes:
		if m.bug != reuseUnbarred && !w.persist(func() { m.storeOnce(reusedID(w.mj), func() {}) }) {
			return
		}
		if w.mj.result {
			w.endWithResult()
			return
		}
		w.mustCall = true
		w.dropIntents()
		w.live()
	default:
		m.fail("fate %d", fate)
	}
}

func (w *jobsWay) endWithResult() {
	if w.found.Uncalled() || w.found.Forgoing && w.mj.resultOf == 0 && !w.lost {
		if w.keepRecord(reusedRecord()) {
			w.finish()
		}
		return
	}
	w.calls = max(w.calls, w.mj.resultOf)
	if w.lost && w.o.m.bug != recordOfTheEarlierCall {
		w.calls = max(w.calls, w.intent.Call)
	}
	recorded := !w.lost && w.found.Ended && w.mj.resultOf <= w.found.Recorded
	if w.operation != nil && !w.lost {
		if recorded || w.keepRecord(w.endRecord(ledger.Done)) {
			w.finish()
		}
		return
	}
	c := w.record(httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
	if recorded || w.keepRecord(c) {
		w.finish()
	}
}

func (w *jobsWay) endLost() {
	m := w.o.m
	w.doubt.Add(deadletter.BilledUnknown, w.intent.Idempotency)
	remedy := recovery.Mend(recovery.Open{
		Keyed: w.intent.Idempotency != "", Same: w.doubt.Allows(m.api, packID(w.in), m.at(m.clock)), Poisonous: w.deaths >= schedule.MostDeaths,
	})
	if m.bug == repeatsWithoutKey {
		remedy = recovery.Repeats
	}
	if remedy == recovery.Repeats {
		w.mj.repeated = true
		w.bind(w.in)
		if w.again(w.record(httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown})) {
			w.live()
		}
		return
	}
	if m.bug != resultUnbarred && !w.persist(func() { m.bar(w.mj) }) {
		return
	}
	if w.mj.result {
		w.endWithResult()
		return
	}
	out := httpcall.Unknown(deadletter.BilledUnknown, "lost")
	if remedy == recovery.GivesUp {
		out.Reason = deadletter.Exhausted
	}
	w.bury(out.Reason, w.record(out))
}

// bar bars a late result of a job.
func (m *recoveryModel) bar(j *modelJob) {
	m.storeOnce(resultID(j), func() {})
}
