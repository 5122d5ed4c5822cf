package deadletter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// A task is a redrive that is stored in NATS, so that it outlives the process that started it and the replica that
// works on it. It has two entries: operators write the order, and the replica that works on the task writes the
// progress. The order fixes which letters the task has. The progress is only a hint, written at most four times a
// second: the redrive's own checks, not the progress, keep a letter from being redriven twice.

// TaskState is the state of a task: a closed set.
type TaskState string

// The states.
const (
	TaskWaiting TaskState = "waiting" // for a replica, for the right to end letters, or as Why says
	TaskRunning TaskState = "running"
	TaskStopped TaskState = "stopped" // by an operator, until it is resumed
	TaskDone    TaskState = "done"    // all its letters are done
	TaskFailed  TaskState = "failed"  // see Why; it can be resumed
)

// Ended reports whether no replica works on the task until an operator resumes it.
func (s TaskState) Ended() bool { return s == TaskStopped || s == TaskDone || s == TaskFailed }

// Bounds of tasks.
const (
	maxTaskName  = 63
	maxTasks     = 200      // that are stored; beyond it the oldest that are done or failed are deleted
	maxTaskOrder = 48 << 10 // bytes of an order: servers accept messages of at least 64 KiB
)

// RedrivePriority is the default priority of redriven jobs. It is low, so that they do not delay new jobs.
const RedrivePriority = ingest.Low

// TaskOrder is what a task must do. Its letters never change; Stopped, StoppedBy and Run do.
type TaskOrder struct {
	Name    string    `json:"name"`
	By      string    `json:"by"`
	Created time.Time `json:"created"`
	// The letters of the task: those in Numbers or, if it is empty, those from First to Last that Filter chooses.
	Filter    Filter  `json:"filter"`
	Numbers   Numbers `json:"numbers,omitempty"`
	First     uint64  `json:"first"`
	Last      uint64  `json:"last"`
	Said      string  `json:"said,omitempty"` // the selection in the operator's words
	RateCount int64   `json:"rate_count"`
	RatePer   int64   `json:"rate_per_ns"`

	IncludeUnknown   bool `json:"include_unknown,omitempty"`
	IncludeCancelled bool `json:"include_cancelled,omitempty"`
	DropDeadline     bool `json:"drop_deadline,omitempty"`
	// Priority of the redriven jobs; "": RedrivePriority
	Priority string `json:"priority,omitempty"`
	Edit     *Edit  `json:"edit,omitempty"` // of the one letter

	EditedBody string `json:"edited_body,omitempty"` // the key of the entry with the body of Edit

	Letters int   `json:"letters"` // to publish, by the plan
	Total   int   `json:"total"`   // with those to delete only, and those to leave alone
	Cost    int64 `json:"cost"`    // of Letters, in millionths

	Stopped   bool   `json:"stopped,omitempty"`    // by an operator
	StoppedBy string `json:"stopped_by,omitempty"` // the operator
	Run       int    `json:"run"`                  // how often the task was resumed
}

// Rate returns how fast the task publishes letters.
func (o *TaskOrder) Rate() bucket.Rate {
	return bucket.Rate{Count: max(1, o.RateCount), Per: time.Duration(max(1, o.RatePer)), Burst: 1}
}

// options returns the options with the order's parameters.
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
	to.Priority = new(RedrivePriority)
	if p, err := ingest.ParsePriority(o.Priority); err == nil {
		to.Priority = &p
	}
	return to
}

// TaskProgress is the progress of a task.
type TaskProgress struct {
	State   TaskState `json:"state,omitempty"`
	Run     int       `json:"run"` // the order's Run that this progress belongs to
	Worker  string    `json:"worker,omitempty"`
	Begun   time.Time `json:"begun,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Next    uint64    `json:"next"`           // letters before this number are done
	Paced   time.Time `json:"paced,omitzero"` // the next letter must not be published before this time
	Tally   Tally     `json:"tally"`
	Why     string    `json:"why,omitempty"` // why it waits or has failed
}

// Task is a redrive as it is stored in NATS.
type Task struct {
	TaskOrder
	Progress TaskProgress

	orderRevision, progressRevision uint64
}

// State returns the state of the task.
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

// Resting reports whether no replica works on the task, as far as the stored progress shows.
func (t *Task) Resting() bool { return t.Progress.State != TaskRunning }

// Gone returns how many of a task's letters no longer existed when the task reached them: another process ended them,
// they became too old, or a replica died after it redrove them and before it stored the progress. It is 0 until the
// task is done.
func (t *Task) Gone() int {
	if t.State() != TaskDone {
		return 0
	}
	return max(0, t.Total-t.Progress.Tally.Done())
}

// CheckTaskName returns an error if a task's name is invalid.
func CheckTaskName(name string) error {
	ok := name != "" && len(name) <= maxTaskName
	for i, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || i > 0 && (r == '-' || r == '_'))
	}
	if !ok {
		return fmt.Errorf("%q: %w, and has at most %d", name, ErrTaskName, maxTaskName)
	}
	return nil
}

// newTaskName returns a name with the time and a random part.
func newTaskName(now time.Time) string {
	return "redrive-" + now.UTC().Format("20060102-150405") + "-" + strconv.FormatInt(36*36+rand.Int64N(35*36*36), 36)
}

// Numbers has sequences of letters, in order. As text they are ranges, as in 3-9,12.
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
			return fmt.Errorf("a task takes at most %d letters", MaxRedrive)
		}
		*n = slices.Grow(*n, int(last-first)+1)
		for seq := first; seq <= last; seq++ {
			*n = append(*n, seq)
		}
	}
	return nil
}
