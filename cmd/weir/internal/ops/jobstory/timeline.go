package jobstory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// Timeline is all that is known of an id.
type Timeline struct {
	Jobs   []*Job   `json:"jobs"`
	Looked []Looked `json:"looked"`
	// Silent says which queues could not be asked, and why: the job may be in one of them. It also says why it is not
	// known whether ends were posted.
	Silent []string `json:"silent,omitempty"`
}

// Looked is how far back a stream was searched.
type Looked struct {
	Stream   string    `json:"stream"`
	Messages int       `json:"messages"`
	Back     time.Time `json:"back,omitzero"` // to the oldest message that was read
	All      bool      `json:"all"`           // whether the whole stream was read
}

// State says where a job is: one of the constants.
type State string

// The states.
const (
	Queued  State = "queued" // it has not ended
	Done    State = "done"   // it has a result, or had one
	Dead    State = "dead"   // it is a dead letter
	Unknown State = "gone"   // there are traces of it, but none of its end
)

// Job is one job: an id under an api and a key.
type Job struct {
	API   string     `json:"api"`
	Key   string     `json:"key"`
	Job   string     `json:"job"`
	State State      `json:"state"`
	Queue *Queue     `json:"queue,omitempty"`
	Dead  *JobLetter `json:"letter,omitempty"` // the newest
	Spent string     `json:"spent"`
	Doubt string     `json:"in_doubt"`
	Steps []Step     `json:"timeline"`
	// Result is the newest, of a job that is done. It has a body only in "weir job", and only of up to 64 KiB.
	Result *KeptResult `json:"result,omitempty"`
	// Callback says whether the job's newest end was posted to the callback of its api. It is absent if the job has not
	// ended, if the sequence of its result is unknown, if the api has no callback, if no replica answers, and in answers
	// to producers.
	Callback *Callback `json:"callback,omitempty"`

	result  *ledger.Result  // the newest result, with its body if that was read
	records map[string]bool // records in Steps, by the ids that recorded gives them

	resultSeq  uint64 // the sequence of the newest result, even if that is not kept any more; 0: unknown
	isImported bool   // the newest letter was imported
}

// Callback says whether a job's end was posted to the callback of its api.
type Callback struct {
	admin.Posting
	Text string `json:"text"` // the same in a sentence
}

// Queue is the position of an unfinished job.
type Queue struct {
	desk.QueuedJob
}

// JobLetter is a stored dead letter of the job.
type JobLetter struct {
	Seq    uint64            `json:"seq"`
	Reason deadletter.Reason `json:"reason"`
	Detail string            `json:"detail"`
	Billed deadletter.Billed `json:"billed"`
}

// StepKind says what happened: one of the constants.
type StepKind string

// The kinds of steps.
const (
	Accepted StepKind = "accepted"
	Called   StepKind = "call"
	Polled   StepKind = "operation" // the end of the operation that a call began
	Asked    StepKind = "inquiry"   // the api was asked what became of a call
	Forgone  StepKind = "reused"    // it got the answer of another job instead of a call
	Result   StepKind = "result"
	Buried   StepKind = "letter"
	Event    StepKind = "event"
)

// Step is one thing that happened to a job.
type Step struct {
	At   time.Time `json:"at"`
	What StepKind  `json:"what"`
	Text string    `json:"text"`
	// Stream and Seq are the position of the message that says so.
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`

	Call    int               `json:"call,omitempty"`
	Status  int               `json:"status,omitempty"`
	Outcome string            `json:"outcome,omitempty"`
	Ended   time.Time         `json:"ended,omitzero"` // of a call, a poll or an inquiry
	Price   string            `json:"price,omitempty"`
	Billed  deadletter.Billed `json:"billed,omitempty"`
	Type    string            `json:"type,omitempty"` // of an event
	Pack    string            `json:"pack,omitempty"` // that a call was for, if it had several jobs
	// WaitedMS is how long the job had waited for its first call, and Ahead is how many other calls of its key began
	// meanwhile; 200 means that many or more. Both are 0 for any other step, and for a wait of less than 10 ms.
	WaitedMS int64 `json:"waited_ms,omitempty"`
	Ahead    int   `json:"ahead,omitempty"`
	// HeldFor is what kept the job from this call for longest since its last one, or since it was accepted, beside its
	// key's rate and the jobs before it. It is one of the values of `waits.for` of a key. HeldLimit names the limit, if
	// it was one, and HeldMS is for how long. They are absent if nothing held the job for more than a tenth of the
	// wait, or if the replica that called had not seen it.
	HeldFor   schedule.WaitFor `json:"held_for,omitempty"`
	HeldLimit string           `json:"held_limit,omitempty"`
	HeldMS    int64            `json:"held_ms,omitempty"`

	// The following are of a record.
	final    bool             // whether it ended the job
	accepted time.Time        // when the job was accepted; a redriven job is accepted again
	origin   string           // names the job since that acceptance
	found    httpcall.Finding // by an inquiry
}

// order sorts the steps by time. Of steps with the same time, causes come before effects.
func (j *Job) order() {
	rank := map[StepKind]int{Accepted: 0, Called: 1, Polled: 1, Asked: 1, Forgone: 1, Result: 2, Buried: 3, Event: 4}
	slices.SortStableFunc(j.Steps, func(a, b Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank[a.What], rank[b.What]), cmp.Compare(a.Seq, b.Seq))
	})
}

// at returns the job of an api and a key. It adds the job if it is new.
func (t *Timeline) at(api, key, id string) *Job {
	for _, j := range t.Jobs {
		if j.API == api && j.Key == key {
			return j
		}
	}
	j := &Job{API: api, Key: key, Job: id, State: Unknown, records: map[string]bool{}}
	t.Jobs = append(t.Jobs, j)
	return j
}

// sort orders the jobs by api and key.
func (t *Timeline) sort() {
	slices.SortFunc(t.Jobs, func(a, b *Job) int { return cmp.Or(strings.Compare(a.API, b.API), strings.Compare(a.Key, b.Key)) })
}
