package lane

import (
	"strings"
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

// Job is one job from the moment at which the worker makes it ready, finds it with a history, or begins to end it
// without a call. Before that, the schedule keeps only its sequence. It has a goroutine, one at a time, while it is
// made ready, called and settled.
type Job struct {
	*schedule.Job        // what the schedule decides by; the lane's lock guards it
	Part          *Owned // set once

	// The lane's lock guards the fields from here on, because other goroutines read or set them.

	Terms     *Terms       // the terms by which it was last made ready
	Message   *ingest.Job  // nil unless the job is near its call
	Space     *queue.Space // the room in memory for message and answer
	Orders    chan<- Order // to its goroutine; nil while it has none
	ID        string       // the job's id, kept while message is unloaded
	Accepted  bucket.Micros
	Staged    bucket.Micros  // when the worker began to make it ready
	Announced Announced      // its intents
	Marks     Marks          // its retry mark, and the marks of its end
	Entry     recorder.Entry // its call's entry in the flight recorder
	Lost      *FoundIntent   // the intent of a lost call, until that call is settled; nil for none
	Leads     *Pack          // the pack that it leads on its way to a call, and in it; nil: it is called alone
	In        *queue.Pack    // the pack of its present or last call; nil: it was called alone
	Why       string         // reason an operator gave for cancelling it
	Ended     chan struct{}  // closed when the job has ended; nil unless a caller waits for that
	Outcome   string         // valid once Ended is closed

	// The fields from here on belong to the job's goroutine. While it has none, the lane's lock guards them.

	Missing    int    // how often its message was not found
	Attempts   int    // calls that count as attempts
	Status     int    // status of the api's last answer, 0 if there was none
	Doubt      Doubt  // whether the api may have processed its calls so far
	Bill       Bill   // what its last call took; the lane's lock guards Reserved, which intents store
	Forgotten  bool   // while it waited for its slot, the api may have forgotten its key: it must be parked
	MustCall   bool   // it cannot end with another job's answer
	Crashes    int    // calls during which weir crashed
	AnsweredAt uint64 // the ledger sequence of the record of the last call that the api answered, 0 for none

	LastCall *deadletter.LastCall // the last call that was sent, for a letter; nil if nothing is known of it
	Flown    *recorder.Found      // what the process that made the lost call noted of it
	Adopted  recorder.Entry       // the entry of a call that an earlier process intended and did not begin
	// IntendedAt is when the server stored the newest intent. It is zero once recovery has looked up what the call may
	// have left.
	IntendedAt time.Time

	Operation *queue.Operation // the operation that its last call began; nil for none
	Granted   *bucket.Use      // the end of its last call's grant, until its operation holds the slot

	Traced  *trace.Job      // its spans; nil until the first one is needed after the job was loaded
	Settled time.Time       // when the worker began to store the outcome of its last call
	Rested  bucket.Micros   // when it began to wait for its next call; 0 if it does not wait, or that is unknown
	Holdup  schedule.Holdup // what delayed its last call, for the ledger
}

// Marks are the sequences of a job's marks in its partition's stream. The lane's lock guards them.
type Marks struct {
	Last uint64        // of its retry mark, or of its operation's; 0 for none
	Ends []uint64      // of the marks of its end
	Held bucket.Micros // until when the hold lasts that Last records; 0: it records none
}

// Replace notes a newer mark, and has the last one deleted.
func (m *Marks) Replace(p *Owned, seq uint64) {
	if m.Last != 0 {
		p.Bucket.Discard(m.Last)
	}
	m.Last, m.Held = seq, 0
}

// Drop has all marks deleted.
func (m *Marks) Drop(p *Owned) {
	m.Replace(p, 0)
	for _, seq := range m.Ends {
		p.Bucket.Discard(seq)
	}
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

// Answered resizes the Space of a called job to the bytes of its message and of the answer r.
func (j *Job) Answered(r httpcall.Response) {
	if j.Message != nil {
		j.Space.Resize(jobSize(j.Message) + int64(len(r.Body)))
	}
}

// Unload releases a job's message and its space. The schedule calls it, under the lane's lock.
func (j *Job) Unload() {
	if j.Message != nil {
		j.ID, j.Message = strings.Clone(j.Message.ID), nil // the id alone, not the header that it is a part of
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
