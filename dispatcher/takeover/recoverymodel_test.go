package takeover

import (
	"fmt"
	"hash"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/ingest"
)

// recoveryModel is a partition, its streams, the api and the processes that own the partition one after the other, in
// virtual time. Each write is a step of its own, and so is its acknowledgement. Between two steps a process may be
// killed, the machine may lose its power, or an owner may lose the partition while its writes are on their way.
type recoveryModel struct {
	rnd *rand.Rand
	api *httpcall.API
	// operates says that the api accepts some calls and goes on working.
	operates bool
	// late says that most writes of former owners arrive late.
	late  bool
	bug   plantedMistake
	packs *packModel // nil: each call has one job

	clock  time.Duration
	seq    uint64 // of the partition's stream
	epoch  uint64 // the newest
	stream []modelMessage
	// unsynced are deletions that a power cut may undo: the disk has them after the next write to the stream.
	unsynced []modelMessage

	records  []*ledger.Record
	known    map[string]bool // message ids of results, records and letters, until the streams forget them
	forgot   time.Duration   // when they last did
	jobs     []*modelJob
	notes    map[uint64]*modelNote // of the flight recorder
	entries  uint64
	owners   []*modelOwner
	onTheWay []*modelWrite
	faults   int // kills, cuts and lost leases that may still come
	often    int // one comes every so many steps
	wrong    []string
	course   hash.Hash64 // of all that happens; nil: nothing is summed up
}

// modelMessage is a message of the partition's stream: a job, an intent or a mark.
type modelMessage struct {
	seq    uint64
	stored time.Duration
	job    *modelJob // of a job's message
	intent []queue.Intent
	mark   *queue.RetryMark
}

// modelJob is a job as seen from outside weir.
type modelJob struct {
	seq       uint64
	accepted  bucket.Micros
	result    bool
	resultOf  int // the call that the result is of; 0: it is another job's answer
	resultAt  time.Duration
	letters   []deadletter.Reason
	called    map[int]int // how often each call of it was sent, by number
	processed int         // how often the api has processed it
	operation bool        // the api has accepted it, and goes on working on it
	operated  string      // how its operation has ended: done or failed; "": it runs
	unlogged  int         // calls that the code gives up on recording
	// repeated says that a lost call was repeated under its key. The result of the lost call may then come late, and
	// nothing bars it: there may also be a letter for another reason, and the ledger may lack its last record.
	repeated bool
	// untraced says that an earlier owner's deletion of an intent came late, after a later owner had taken the intent's
	// call for lost. If the later owner then dies before it has deleted the job, and minutes pass, the job is called
	// again.
	untraced bool
}

// modelNote is an entry of a flight recorder.
type modelNote struct {
	of    *modelOwner
	state recorder.State
	out   httpcall.Outcome
}

// modelOwner is a process while it owns the partition.
type modelOwner struct {
	m       *recoveryModel
	epoch   uint64
	right   bool // it may call and write
	ended   bool // its process has ended
	cut     bool // and its machine was restarted since
	ways    []*jobsWay
	rests   []*jobsWay    // jobs that wait for a pack
	began   time.Duration // when it took the partition over
	started time.Duration // from when on it has read the ledger and the results
}

// modelWrite is a write on its way.
type modelWrite struct {
	of     *modelOwner
	way    *jobsWay // that waits for the acknowledgement; nil: none does
	arrive func()
	intent *queue.Intent // of a write of an intent
	// intents are the intents of a pack, one for each of ways.
	intents []queue.Intent
	ways    []*jobsWay
}

// jobsWay is one job's way through an owner, a coroutine that stops at each of its writes.
type jobsWay struct {
	o       *modelOwner
	mj      *modelJob
	yield   func(*modelWrite) bool
	next    func() (*modelWrite, bool)
	stop    func()
	waiting bool // for an acknowledgement
	over    bool

	// What follows has the meaning of the fields of job and foundJob.
	calls, attempts, deaths int
	doubt                   lane.Doubt
	intents                 []*lane.IntentMark
	entry, adopted          uint64 // of the flight recorder
	marks                   []uint64
	found                   recovery.Found
	intent                  *lane.FoundIntent
	last                    ledger.LastCall
	mark                    foundMark
	lost, flown             bool
	operation               *queue.Operation // that the job's last call has begun
	mustCall                bool
	look                    bool // what the newest intent's call may have left has to be looked up
	refused                 bool // by the stream: the last intent
	in, bond                *queue.Pack
}

func newRecoveryModel(seed uint64, bug plantedMistake) *recoveryModel {
	m := &recoveryModel{
		rnd: rand.New(rand.NewPCG(seed, 23)), api: &httpcall.API{}, bug: bug, known: map[string]bool{},
		notes: map[uint64]*modelNote{},
	}
	m.faults, m.often = m.rnd.IntN(7), []int{6, 20}[m.rnd.IntN(2)]
	if m.rnd.IntN(2) == 0 {
		m.api.Idempotency = &httpcall.Idempotency{Header: "Key"}
	}
	m.operates, m.late = m.rnd.IntN(2) == 0, m.rnd.IntN(2) == 0
	for range 1 + m.rnd.IntN(3) {
		j := &modelJob{seq: m.store(modelMessage{}), called: map[int]int{}}
		j.accepted = bucket.MicrosOf(m.at(m.clock))
		m.stream[len(m.stream)-1].job = j
		m.jobs = append(m.jobs, j)
	}
	return m
}

func (m *recoveryModel) at(d time.Duration) time.Time {
	return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC).Add(d)
}

// one reports true once in n times.
func (m *recoveryModel) one(n int) bool { return m.rnd.IntN(n) == 0 }

func (m *recoveryModel) fail(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf("after %v: ", m.clock)+fmt.Sprintf(format, args...))
}

// store appends a message to the partition's stream. Earlier deletions are then on disk as well.
func (m *recoveryModel) store(msg modelMessage) (seq uint64) {
	m.seq++
	m.clock += time.Second
	m.unsynced = nil
	msg.seq, msg.stored = m.seq, m.clock
	m.stream = append(m.stream, msg)
	return m.seq
}

// remove deletes a message of the partition's stream.
func (m *recoveryModel) remove(seq uint64) {
	i := slices.IndexFunc(m.stream, func(msg modelMessage) bool { return msg.seq == seq })
	if i < 0 {
		return
	}
	msg := m.stream[i]
	m.stream = slices.Delete(m.stream, i, i+1)
	m.unsynced = append(m.unsynced, msg)
	if msg.job != nil {
		m.checkEnd(msg.job)
	}
}

// checkEnd checks that a job's end is stored completely when its message is deleted.
func (m *recoveryModel) checkEnd(j *modelJob) {
	last := m.newest(j, 0)
	switch {
	case !j.result && len(j.letters) == 0:
		m.fail("job %d is deleted and has neither a result nor a letter", j.seq)
	case j.result && !j.repeated && (last == nil || !last.Final):
		m.fail("job %d is deleted, and no record says that its call succeeded", j.seq)
	}
}

// newest returns a job's newest record that was stored since a time, nil for none.
func (m *recoveryModel) newest(j *modelJob, since time.Duration) (newest *ledger.Record) {
	for _, c := range m.records {
		if c.Seq == j.seq && c.Stored.Sub(m.at(0)) >= since && (newest == nil || c.Call >= newest.Call) {
			newest = c
		}
	}
	return newest
}

// storeOnce treats a message id as a stream does: it stores the first message, and reports any other as a duplicate.
func (m *recoveryModel) storeOnce(id string, store func()) (duplicate bool) {
	m.clock += time.Second
	if m.known[id] {
		return true
	}
	m.known[id] = true
	store()
	return false
}

func resultID(j *modelJob) string { return fmt.Sprintf("result.%d", j.seq) }

func (m *recoveryModel) storeResult(j *modelJob, call int) (duplicate bool) {
	return m.storeOnce(resultID(j), func() {
		if j.result && j.operation {
			m.fail("job %d, which the api has accepted, has two results", j.seq)
		}
		if j.result && j.resultOf == 0 {
			m.fail("job %d has another job's answer, and now a result", j.seq)
		}
		j.result, j.resultOf, j.resultAt = true, call, m.clock
		if len(j.letters) > 0 && !j.repeated && !j.untraced {
			m.fail("job %d has a letter %s, and now a result", j.seq, j.letters[0])
		}
		if j.processed == 0 {
			m.fail("job %d has a result, and the api has not processed it", j.seq)
		}
	})
}

// recordOf returns the first record of a call, nil for none.
func (m *recoveryModel) recordOf(j *modelJob, call int) *ledger.Record {
	i := slices.IndexFunc(m.records, func(c *ledger.Record) bool { return c.Seq == j.seq && c.Call == call })
	if i < 0 {
		return nil
	}
	return m.records[i]
}

// storeRecord stores a record. An owner must not give it the number of a call whose final record it has read.
func (m *recoveryModel) storeRecord(o *modelOwner, j *modelJob, c ledger.Record) (duplicate bool) {
	if r := m.recordOf(j, c.Call); r != nil && r.Final && o.reads(r.Stored.Sub(m.at(0))) {
		m.fail("the record of call %d of job %d says %s, and the one that its owner has read says %s", c.Call, j.seq, c.Outcome, r.Outcome)
	}
	id := fmt.Sprintf("call.%d.%d", j.seq, c.Call)
	if c.Polled && m.bug != endsAsTheCall {
		id = fmt.Sprintf("end.%d", j.seq)
	}
	return m.storeOnce(id, func() {
		c.Key, c.Dedupe, c.Seq, c.Accepted, c.Stored = "k", "j", j.seq, j.accepted.Time(), m.at(m.clock)
		if r := m.newest(j, 0); c.Polled && r != nil && r.Polled && r.Outcome != c.Outcome {
			m.fail("the operation of job %d has ended as %s, and now as %s", j.seq, r.Outcome, c.Outcome)
		}
		m.records = append(m.records, &c)
		if (c.Outcome == ledger.Done || c.Outcome == ledger.Reused) && !j.result {
			m.fail("the record of call %d of job %d says done, and there is no result", c.Call, j.seq)
		}
	})
}

func (m *recoveryModel) storeLetter(o *modelOwner, j *modelJob, reason deadletter.Reason) {
	m.storeOnce(fmt.Sprintf("letter.%d", j.seq), func() {
		j.letters = append(j.letters, reason)
		if j.result && (!j.repeated || o.reads(j.resultAt)) {
			m.fail("job %d has a result, and now a letter %s", j.seq, reason)
		}
		told := m.newest(j, 0) != nil
		for _, msg := range m.stream {
			told = told || msg.mark != nil && msg.mark.Seq == j.seq && msg.mark.Ends != ""
		}
		if !told {
			m.fail("job %d has a letter %s, and neither a record nor a mark from which it could be written again", j.seq, reason)
		}
	})
}

// process does what the api does at a call. The api knows the key of a job that it has processed, and then answers as
// it did before.
func (m *recoveryModel) process(j *modelJob, call int) httpcall.Outcome {
	j.called[call]++
	keyed := m.api.Idempotency != nil
	if keyed && j.operation && !m.one(6) {
		return submitted
	}
	if keyed && j.processed > 0 && !j.operation && !m.one(6) { // else the api fails before it knows the key
		return httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes}
	}
	switch m.rnd.IntN(6) {
	case 0:
		return httpcall.Outcome{Verdict: httpcall.Dead, Billed: deadletter.NotBilled, Reason: deadletter.Rejected}
	case 1:
		return httpcall.Outcome{Verdict: httpcall.Pushback, Billed: deadletter.NotBilled}
	case 2: // it failed, and may have processed the job
		if m.one(2) {
			j.processed++
		}
		if keyed {
			return httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown}
		}
		return httpcall.Outcome{Verdict: httpcall.Dead, Billed: deadletter.BilledUnknown, Reason: deadletter.Unknown}
	}
	if m.operates && (j.operation || j.processed == 0 && m.one(2)) {
		if !j.operation || !keyed {
			j.processed++
		}
		j.operation = true
		return submitted
	}
	j.processed++
	return httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes}
}

// submitted is the outcome of a call that the api has accepted.
var submitted = httpcall.Outcome{Verdict: httpcall.Submitted, Billed: deadletter.BilledYes, Operation: &queue.Operation{Address: "https://api/1"}}

// poll does what the api does at a poll. It returns how the operation has ended, "" while it runs or if the api does
// not answer.
func (m *recoveryModel) poll(j *modelJob) string {
	switch {
	case m.one(4):
		return ""
	case j.operated != "":
	case m.one(4):
		j.operated = ledger.Done
	case m.one(8):
		j.operated = string(deadletter.Rejected)
	}
	return j.operated
}

// takeOver makes a new process the partition's owner. It reads the ledger's end and the results, then the stream.
func (m *recoveryModel) takeOver() {
	o := &modelOwner{m: m, right: true}
	o.epoch = m.store(modelMessage{})
	m.stream = m.stream[:len(m.stream)-1] // the epoch itself
	m.epoch, o.began = o.epoch, m.clock
	m.owners = append(m.owners, o)
	if m.forgot > 0 && m.one(2) {
		o.started = time.Duration(m.rnd.Int64N(int64(m.forgot)))
	}
	r := newReplay()
	r.records = map[uint64]ledger.LastCall{}
	results := map[uint64]bool{}
	for _, j := range m.jobs {
		if c := m.newest(j, o.started); c != nil && m.bug != ignoresRecords {
			r.records[j.seq] = c.Last()
		}
		results[j.seq] = j.result && j.resultAt >= o.started
	}
	for _, msg := range m.stream {
		mark := &lane.IntentMark{Seq: msg.seq, Users: len(msg.intent)}
		for _, i := range msg.intent {
			f := r.of(i.Seq)
			f.intents = append(f.intents, lane.FoundIntent{Intent: i, Mark: mark, Stored: m.at(msg.stored)})
		}
		if msg.mark != nil {
			f := r.of(msg.mark.Seq)
			f.marks = append(f.marks, foundMark{*msg.mark, msg.seq, m.at(msg.stored)})
		}
	}
	for _, msg := range slices.Clone(m.stream) {
		if msg.job == nil {
			continue
		}
		h, outdated := r.history(queue.Entry{
			Kind: queue.JobEntry, Seq: msg.seq, Key: "k", Time: msg.job.accepted.Time(),
			Header: map[string][]string{ingest.HeaderMsgID: {ingest.StoredID("k", "j")}},
		})
		o.discard(&outdated)
		if results[msg.seq] {
			h.result = &ledger.StoredResult{Reused: msg.job.resultOf == 0}
		}
		o.begin(msg.job, h)
	}
	for _, seq := range slices.Sorted(maps.Keys(r.found)) { // their jobs are gone
		o.discard(r.found[seq])
	}
}

// reads reports whether the owner has read what was stored at a time.
func (o *modelOwner) reads(stored time.Duration) bool { return o.started <= stored && stored < o.began }

// begin queues or resumes a job that is in the stream.
func (o *modelOwner) begin(j *modelJob, h jobHistory) {
	way := &jobsWay{o: o, mj: j}
	way.next, way.stop = iter.Pull(func(yield func(*modelWrite) bool) {
		way.yield = yield
		if h == (jobHistory{}) {
			way.live()
		} else {
			way.resume(h)
		}
	})
	o.ways = append(o.ways, way)
}

// step lets a job's way continue to its next write.
func (m *recoveryModel) step(way *jobsWay) {
	write, more := way.next()
	if !more {
		way.over = true
		return
	}
	write.of, write.way, way.waiting = way.o, way, true
	m.onTheWay = append(m.onTheWay, write)
}

// land makes a write that is on its way arrive. Its acknowledgement comes when the job's way is stepped next.
func (m *recoveryModel) land(i int) {
	write := m.onTheWay[i]
	m.onTheWay = slices.Delete(m.onTheWay, i, i+1)
	if write.intent != nil {
		m.landIntents(write)
		return
	}
	write.arrive()
	if write.way != nil {
		write.way.waiting = false
	}
}

// landIntents stores a job's intent. The same message may hold intents that the owner's other jobs wait for.
func (m *recoveryModel) landIntents(first *modelWrite) {
	all := []*modelWrite{first}
	for i := 0; i < len(m.onTheWay); {
		if w := m.onTheWay[i]; w.intent != nil && w.of == first.of && m.one(2) {
			all = append(all, w)
			m.onTheWay = slices.Delete(m.onTheWay, i, i+1)
		} else {
			i++
		}
	}
	stands := m.epoch == first.of.epoch || m.bug == intentsUnfenced
	var mark *lane.IntentMark
	if stands && m.bug != calledWithoutIntent {
		msg := modelMessage{}
		for _, w := range all {
			if w.ways != nil {
				msg.intent = append(msg.intent, w.intents...)
				continue
			}
			msg.intent = append(msg.intent, *w.intent)
		}
		mark = &lane.IntentMark{Seq: m.store(msg), Users: len(msg.intent)}
	}
	for _, w := range all {
		w.way.waiting = false
		w.way.refused = !stands
		of := w.ways
		if of == nil {
			of = []*jobsWay{w.way}
		}
		for _, way := range of {
			if stands && mark != nil {
				way.intents = append(way.intents, mark)
			}
		}
	}
}

// discard deletes markers that no job needs.
func (o *modelOwner) discard(f *found) {
	for _, i := range f.intents {
		if i.Mark.Users--; i.Mark.Users == 0 {
			o.delete(i.Mark.Seq)
		}
	}
	for _, n := range f.marks {
		o.delete(n.seq)
	}
}

// delete has a message of the partition's stream deleted at some time.
func (o *modelOwner) delete(seq uint64) { o.deleteThen(seq, func() {}) }

// deleteThen has a message deleted at some time, and then calls then, if its process has not ended.
func (o *modelOwner) deleteThen(seq uint64, then func()) {
	if !o.right {
		return
	}
	m := o.m
	m.onTheWay = append(m.onTheWay, &modelWrite{of: o, arrive: func() {
		if i := slices.IndexFunc(m.stream, func(msg modelMessage) bool { return msg.seq == seq }); i >= 0 && m.epoch != o.epoch {
			for _, intent := range m.stream[i].intent {
				m.jobs[intent.Seq-1].untraced = true
			}
		}
		m.remove(seq)
		if !o.ended {
			then()
		}
	}})
}
