package deadletter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// A task is a redrive that stands in NATS, so that it outlives whoever began it and whoever works it. Two entries hold it: its order,
// which operators write, and its progress, which the replica writes that works it. Which letters it means is frozen in the order. The
// progress is a hint, written a few times a second: what keeps a letter from being redriven twice is what keeps any redrive from it.

// TaskState is how a task is: a closed set.
type TaskState string

// The states.
const (
	TaskWaiting TaskState = "waiting" // for a replica that works it, for the right to end letters, or for what Why says
	TaskRunning TaskState = "running"
	TaskStopped TaskState = "stopped" // by an operator's word, until it is resumed
	TaskDone    TaskState = "done"    // all its letters are dealt with
	TaskFailed  TaskState = "failed"  // Why says; it can be resumed
)

// Ended reports whether nothing more is done unless somebody resumes the task.
func (s TaskState) Ended() bool { return s == TaskStopped || s == TaskDone || s == TaskFailed }

// Bounds of tasks.
const (
	maxTaskName  = 63
	maxTasks     = 200      // that are kept; of those that are done or have failed the oldest go
	maxTaskOrder = 48 << 10 // bytes of an order: servers take messages of 64 KiB at the least
)

// TaskOrder is what a task is to do. What it means never changes; Wanted and Run do.
type TaskOrder struct {
	Name    string    `json:"name"`
	By      string    `json:"by"`
	Created time.Time `json:"created"`
	// The letters: those from First to Last that Filter chooses or, where Numbers are given, those.
	Filter    Filter  `json:"filter"`
	Numbers   Numbers `json:"numbers,omitempty"`
	First     uint64  `json:"first"`
	Last      uint64  `json:"last"`
	Said      string  `json:"said,omitempty"` // the selection as it was given
	RateCount int64   `json:"rate_count"`
	RatePer   int64   `json:"rate_per_ns"`

	IncludeUnknown   bool  `json:"include_unknown,omitempty"`
	IncludeCancelled bool  `json:"include_cancelled,omitempty"`
	DropDeadline     bool  `json:"drop_deadline,omitempty"`
	Edit             *Edit `json:"edit,omitempty"` // of the one letter there is

	Letters int   `json:"letters"` // that were to be handed in, as the plan had it
	Total   int   `json:"total"`   // with those to be deleted only, and those to be left alone
	Cost    int64 `json:"cost"`    // of Letters, in millionths

	Stopped   bool   `json:"stopped,omitempty"`    // an operator's word
	StoppedBy string `json:"stopped_by,omitempty"` // whose
	Run       int    `json:"run"`                  // how often it was resumed
}

// Rate is how fast the task hands letters in.
func (o *TaskOrder) Rate() bucket.Rate {
	return bucket.Rate{Count: max(1, o.RateCount), Per: time.Duration(max(1, o.RatePer)), Burst: 1}
}

// options puts what the order says into a redrive's options.
func (o *TaskOrder) options(to RedriveOptions) RedriveOptions {
	to.Rate, to.Edit = o.Rate(), o.Edit
	if o.IncludeUnknown {
		to.Unknown = IncludeUnknowns
	}
	if o.IncludeCancelled {
		to.Cancelled = IncludeCancelleds
	}
	if o.DropDeadline {
		to.Deadline = DropDeadline
	}
	return to
}

// TaskProgress is how far a task is.
type TaskProgress struct {
	State   TaskState `json:"state,omitempty"`
	Run     int       `json:"run"` // of the order that it is of
	Worker  string    `json:"worker,omitempty"`
	Begun   time.Time `json:"begun,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Next    uint64    `json:"next"`           // letters before this number are dealt with
	Paced   time.Time `json:"paced,omitzero"` // the next letter may not go before
	Tally   Tally     `json:"tally"`
	Why     string    `json:"why,omitempty"` // it waits, or has failed
	// Unreachable says of Why that something does not answer, which may change by itself.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Task is one, as it stands in NATS.
type Task struct {
	TaskOrder
	Progress TaskProgress

	orderRevision, progressRevision uint64
}

// State is how the task is.
func (t *Task) State() TaskState {
	current := t.Progress.Run == t.Run
	switch {
	case current && (t.Progress.State == TaskDone || t.Progress.State == TaskFailed):
		return t.Progress.State
	case t.Stopped:
		return TaskStopped
	case current && t.Progress.State == TaskRunning:
		return TaskRunning
	}
	return TaskWaiting
}

// Resting reports whether no replica works the task, as far as the replicas have said.
func (t *Task) Resting() bool { return t.Progress.State != TaskRunning }

// Gone is how many of a task's letters were gone when it came to them: somebody else has ended them, they became too old, or whoever
// worked the task died before it could note them. It is known when the task is done.
func (t *Task) Gone() int {
	if t.State() != TaskDone {
		return 0
	}
	return max(0, t.Total-t.Progress.Tally.Done())
}

// CheckTaskName says what is wrong with a task's name.
func CheckTaskName(name string) error {
	ok := name != "" && len(name) <= maxTaskName
	for i, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || i > 0 && (r == '-' || r == '_'))
	}
	if !ok {
		return fmt.Errorf("%q cannot be a task's name: it is made of a-z, 0-9, - and _, begins with a letter or a digit, and has at most %d", name, maxTaskName)
	}
	return nil
}

// newTaskName is one that says when the task was begun.
func newTaskName(now time.Time) string {
	return "redrive-" + now.UTC().Format("20060102-150405") + "-" + strconv.FormatInt(36*36+rand.Int64N(35*36*36), 36)
}

// Numbers are letters' numbers, in order. As text they are ranges, as in 3-9,12.
type Numbers []uint64

// MarshalText implements encoding.TextMarshaler.
func (n Numbers) MarshalText() ([]byte, error) {
	var text []byte
	for i := 0; i < len(n); {
		end := i
		for end+1 < len(n) && n[end+1] == n[end]+1 {
			end++
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, n[i], 10)
		if end > i {
			text = strconv.AppendUint(append(text, '-'), n[end], 10)
		}
		i = end + 1
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Numbers) UnmarshalText(text []byte) error {
	*n = nil
	if len(text) == 0 {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if ranged && err == nil {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		switch {
		case err != nil, last < first, len(*n) > 0 && first <= (*n)[len(*n)-1]:
			return fmt.Errorf("%q is no list of letters' numbers in order", part)
		case last-first >= MaxRedrive || len(*n) >= MaxRedrive:
			return errors.New("too many letters' numbers")
		}
		*n = slices.Grow(*n, int(last-first)+1)
		for seq := first; seq <= last; seq++ {
			*n = append(*n, seq)
		}
	}
	return nil
}
