package dispatcher

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

// order is what the schedule decided about a job that is ready.
type order int8

const (
	toCall     order = iota // its slot has come
	toRest                  // it was made ready too early or in vain; its intent is dropped already
	toExpire                // its deadline has passed
	toCancel                // an operator has cancelled it
	toRefuse                // its cost can never pass the limits
	toOverdraw              // the budget is used up, and its rule says to bury the job
)

// job is one job from when it is first made ready, found with a history, or ended without a call. Before that, the
// schedule keeps only its sequence. The worker's lock guards the embedded schedule.Job and every other field that is
// read under the lock. The other fields belong to the job's goroutine, of which there is one at a time.
type job struct {
	*schedule.Job
	part     *partition
	terms    *terms       // the terms by which it was last made ready
	message  *ingest.Job  // nil unless the job is near its call
	space    *queue.Space // the room in memory for message and answer
	orders   chan<- order // to its goroutine; nil while it has none
	id       string       // the job's id, kept while message is unloaded
	accepted bucket.Micros
	staged   bucket.Micros // when the worker began to make it ready
	missing  int           // how often its message was not found

	taken     []int64  // units its last call took from each shared limit, estimated unless the answer reported them
	unsettled []string // limits whose units the answer should have reported, and did not
	attempts  int      // calls that count as attempts
	status    int      // of the api's last answer, 0 if there was none
	doubt     doubt    // what its calls so far may have done
	crashes   int      // calls during which weir crashed
	// answeredAt is the ledger sequence of the record of the last call that the api answered, 0 for none.
	answeredAt uint64

	lastCall *deadletter.LastCall // the last call that was sent, for a letter; nil if nothing is known of it
	lost     *foundIntent         // the intent of a lost call, until that call is settled; nil for none
	flown    *recorder.Found      // what the process that made the lost call noted of it
	entry    recorder.Entry       // its call's entry in the flight recorder
	adopted  recorder.Entry       // the entry of a call that an earlier process intended and did not begin
	intents  []*intentMark
	intended int // the number of the call that its newest intent announces, 0 for none
	// intendedBy holds the terms stored in that intent.
	intendedBy *terms
	// intendedAt is when the server stored that intent. It is zero once recovery has looked up what the call may have
	// left.
	intendedAt time.Time
	markSeq    uint64   // sequence of its retry mark, 0 for none
	ends       []uint64 // sequences of the marks of its end

	traced  *trace.Job    // its spans; nil until the first one is needed after the job was loaded
	settled time.Time     // when the worker began to store the outcome of its last call
	rested  bucket.Micros // since when it waits for its next call; 0 if it does not, or that is unknown

	holdup  schedule.Holdup // what delayed its last call, for the ledger
	why     string          // reason an operator gave for cancelling it
	ended   chan struct{}   // closed when the job has ended; nil unless a caller waits for that
	outcome string          // valid once ended is closed
}

// jobLocked returns the worker's job for a schedule.Job, and makes it if it is missing.
func jobLocked(j *schedule.Job) *job {
	if j.Of == nil {
		j.Of = &job{Job: j, part: partitionOf(j.Queue)}
	}
	return j.Of.(*job)
}

// origin returns the job's permanent name (ledger.OriginOf).
func (j *job) origin() string { return ledger.OriginOf(j.part.bucket.Name(), j.Seq, j.accepted) }

// charged returns the units that the job's last call took from each shared limit. For a call of another process these
// are the units that it was estimated to take, unless more is known.
func (j *job) charged() []int64 {
	if j.taken == nil {
		return j.Costs
	}
	return j.taken
}

// answered resizes a called job's space to what its message and answer take.
func (j *job) answered(r httpcall.Response) {
	if j.message != nil {
		j.space.Resize(jobSize(j.message) + int64(len(r.Body)))
	}
}

// Unload releases a job's message and its space. The schedule calls it, under the worker's lock.
func (j *job) Unload() {
	if j.message != nil {
		j.id, j.message = j.message.ID, nil
	}
	j.space.Release()
	j.space = nil
}

// entrySize returns the bytes that a loaded message takes.
func entrySize(e queue.Entry) int64 { return headersSize(e.Header) + int64(len(e.Data)) }

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

// waitedSince returns when a job's last wait began, or zero if that is unknown after a restart.
func (j *job) waitedSince() time.Time {
	switch {
	case j.rested != 0:
		return j.rested.Time()
	case j.Calls > 1, j.accepted == 0:
		return time.Time{}
	}
	return j.accepted.Time()
}

// rememberEnd notes that a job has ended, for as long as its id may be known.
func (j *job) rememberEnd() {
	if j.message == nil || j.message.DedupeID == "" || j.accepted == 0 {
		return // recovery ended it by its record, which was read with the ledger
	}
	j.part.w.queue.Ended(queue.Finished{Key: j.Queue.Key, DedupeID: j.message.DedupeID, Seq: j.Seq, Accepted: j.accepted.Time()})
}
