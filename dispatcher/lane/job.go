package lane

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/trace"
	"weir/ingest"
)

// Order says what the schedule decided about a ready job.
type Order int8

// The orders.
const (
	ToCall     Order = iota // its slot has come
	ToRest                  // it was made ready too early or in vain; its intent is dropped already
	ToExpire                // its deadline has passed
	ToCancel                // an operator has cancelled it
	ToRefuse                // its cost can never pass the limits
	ToOverdraw              // the budget is used up, and the budget's rule says to bury the job
)

// Job is one job from the time when it is made ready, found with a history, or ended without a call. Before that, the
// schedule keeps only its sequence. The lane's lock guards the embedded schedule.Job and every other field that is read
// under the lock. The other fields belong to the job's goroutine, of which there is one at a time.
type Job struct {
	*schedule.Job
	Part     *Owned
	Terms    *Terms       // the terms by which it was last made ready
	Message  *ingest.Job  // nil unless the job is near its call
	Space    *queue.Space // the room in memory for message and answer
	Orders   chan<- Order // to its goroutine; nil while it has none
	ID       string       // the job's id, kept while message is unloaded
	Accepted bucket.Micros
	Staged   bucket.Micros // when the worker began to make it ready
	Missing  int           // how often its message was not found

	Reserved  int64            // estimated price of its next call, in millionths, not lowered by learned percentiles
	Estimates []int64          // units of each shared limit by the job's own estimates; nil if answers report no units
	Paid      int64            // price of its last call, estimated unless the answer reported it
	Noted     bool             // another process noted what the lost call took
	Taken     []int64          // units its last call took from each shared limit, estimated unless the answer reported them
	Usage     map[string]int64 // numbers of its last call's answer that the usage counts
	Unsettled []string         // limits whose units the answer should have reported, and did not
	Attempts  int              // calls that count as attempts
	Status    int              // status of the api's last answer, 0 if there was none
	Doubt     Doubt            // whether the api may have processed its calls so far
	Forgotten bool             // while it waited for its slot, the api may have forgotten its key: it must be parked
	Crashes   int              // calls during which weir crashed
	// AnsweredAt is the ledger sequence of the record of the last call that the api answered, 0 for none.
	AnsweredAt uint64

	LastCall *deadletter.LastCall // the last call that was sent, for a letter; nil if nothing is known of it
	Lost     *FoundIntent         // the intent of a lost call, until that call is settled; nil for none
	Flown    *recorder.Found      // what the process that made the lost call noted of it
	Entry    recorder.Entry       // its call's entry in the flight recorder
	Adopted  recorder.Entry       // the entry of a call that an earlier process intended and did not begin
	Intents  []*IntentMark
	Intended int // the number of the call that its newest intent announces, 0 for none
	// IntendedBy holds the terms stored in the newest intent. IntendedAs is the identity of the key that its call
	// carries.
	IntendedBy *Terms
	IntendedAs string
	// IntendedAt is when the server stored the newest intent. It is zero once recovery has looked up what the call may
	// have left.
	IntendedAt time.Time
	Leads      *Pack       // the pack that it leads on its way to a call, and in it; nil: it is called alone
	In         *queue.Pack // the pack of its present or last call; nil: it was called alone
	MustCall   bool        // it cannot end with another job's answer
	MarkSeq    uint64      // sequence of its retry mark, 0 for none
	EndMarks   []uint64    // sequences of the marks of its end

	Operation *queue.Operation // the operation that its last call began; nil for none
	Granted   *bucket.Use      // the end of its last call's grant, until its operation holds the slot

	Traced  *trace.Job    // its spans; nil until the first one is needed after the job was loaded
	Settled time.Time     // when the worker began to store the outcome of its last call
	Rested  bucket.Micros // when it began to wait for its next call; 0 if it does not wait, or that is unknown

	Holdup  schedule.Holdup // what delayed its last call, for the ledger
	Why     string          // reason an operator gave for cancelling it
	Ended   chan struct{}   // closed when the job has ended; nil unless a caller waits for that
	Outcome string          // valid once Ended is closed
}

// JobLocked returns the worker's job for a schedule.Job, and creates it if it is missing.
func JobLocked(j *schedule.Job) *Job {
	if j.Of == nil {
		j.Of = &Job{Job: j, Part: PartitionOf(j.Queue)}
	}
	return j.Of.(*Job)
}

// Origin returns the job's permanent name (ledger.OriginOf).
func (j *Job) Origin() string { return ledger.OriginOf(j.Part.Bucket.Name(), j.Seq, j.Accepted) }

// Over returns the units that the job's last call had reserved if the call took more of some limit. Otherwise it
// returns nil.
func (j *Job) Over() []int64 {
	for i := range min(len(j.Costs), len(j.Taken)) {
		if j.Taken[i] > j.Costs[i] {
			return j.Costs
		}
	}
	return nil
}

// Low returns the job's own estimates of the units of each shared limit if its last call took more of some limit.
// Otherwise it returns nil.
func (j *Job) Low() []int64 {
	for i := range min(len(j.Estimates), len(j.Taken)) {
		if j.Taken[i] > j.Estimates[i] {
			return j.Estimates
		}
	}
	return nil
}

// Charged returns the units that the job's last call took from each shared limit. If another process made the call,
// these are the units that it was estimated to take, unless more is known.
func (j *Job) Charged() []int64 {
	if j.Taken == nil {
		return j.Costs
	}
	return j.Taken
}

// Answered resizes the Space of a called job to the bytes of its message and of the answer r.
func (j *Job) Answered(r httpcall.Response) {
	if j.Message != nil {
		j.Space.Resize(jobSize(j.Message) + int64(len(r.Body)))
	}
}

// Unload releases a job's message and its space. The schedule calls it, under the lane's lock.
func (j *Job) Unload() {
	if j.Message != nil {
		j.ID, j.Message = j.Message.ID, nil
	}
	j.Space.Release()
	j.Space = nil
}

// EntrySize returns the bytes that a loaded message takes.
func EntrySize(e queue.Entry) int64 { return headersSize(e.Header) + int64(len(e.Data)) }

func jobSize(j *ingest.Job) int64 { return headersSize(j.Header) + int64(len(j.Body)) }

func headersSize(h map[string][]string) int64 {
	const rest = 2 << 10 // the map, the job, its request
	size := rest
	for name, values := range h {
		size += len(name)
		for _, v := range values {
			size += len(v)
		}
	}
	return int64(size)
}

// RememberEnd makes the queue remember that a job has ended, as long as the job's id must be known.
func (j *Job) RememberEnd() {
	if j.Message == nil || j.Message.DedupeID == "" || j.Accepted == 0 {
		return // recovery ended it by its record, and the id was read with the ledger
	}
	j.Part.W.Queue.Ended(queue.Finished{Key: j.Queue.Key, DedupeID: j.Message.DedupeID, Seq: j.Seq, Accepted: j.Accepted.Time()})
}
