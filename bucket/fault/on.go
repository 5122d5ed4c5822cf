//go:build torture

package fault

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Built reports whether this build has points and bugs.
const Built = true

// The environment of a process with an order. The names do not begin with WEIR_, because weir checks all variables with
// that prefix as settings.
const (
	crashVariable   = "TORTURE_CRASH" // a point, a colon, and which time it is passed
	plantedVariable = "TORTURE_PLANTED"
	bootVariable    = "TORTURE_BOOT"
)

// Points returns all points.
func Points() []Point {
	return []Point{
		JobStored, RefusalNext, LetterStored, EventStored, LeaseStored, EpochDropped, EpochStored, UnknownFound, IntentStored,
		CallNext, CallSent, CallAnswered, ResultStored, RecordStored, RetryStored, LetterKept, DeleteNext, Deleted, AnswerFound, LimitsStored,
	}
}

// Rare reports whether a process passes the point at most a few times in its life.
func (p Point) Rare() bool {
	return slices.Contains([]Point{
		LeaseStored, EpochDropped, EpochStored, UnknownFound, RefusalNext, LetterStored, EventStored, LetterKept, LimitsStored, RetryStored, AnswerFound,
	}, p)
}

// Bugs returns all bugs.
func Bugs() []Bug {
	return []Bug{DeleteFirst, NoIntent, NoFence, NoDedupe, LimiterOpen, LossUnseen, AnswerFirst, RecordLate, RecordMixed, StaleBoot}
}

// Env returns the environment that gives a process the order.
func (o Order) Env() []string {
	var env []string
	if o.Point != "" {
		env = append(env, crashVariable+"="+string(o.Point)+":"+strconv.Itoa(max(1, o.Nth)))
	}
	if o.Bug != "" {
		env = append(env, plantedVariable+"="+string(o.Bug))
	}
	return env
}

// ownOrder returns the order of this process. It is read once; only how often the point was passed changes.
var ownOrder = sync.OnceValue(func() *order {
	o := &order{bug: Bug(os.Getenv(plantedVariable))}
	point, nth, _ := strings.Cut(os.Getenv(crashVariable), ":")
	o.point = Point(point)
	if n, err := strconv.Atoi(nth); err == nil {
		o.left.Store(int64(n))
	}
	return o
})

type order struct {
	point Point
	bug   Bug
	left  atomic.Int64
}

// Pass ends the process if its order names this point, as kill -9 would: no deferred function runs, nothing is flushed.
func Pass(p Point) {
	if o := ownOrder(); p == o.point && o.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // ourselves: it cannot fail
		select {}                                      // the signal may take a moment, in which nothing more must happen
	}
}

// Planted reports whether this process was ordered to have the bug.
func Planted(b Bug) bool { return ownOrder().bug == b }

// Boot returns the machine's boot id that the process must believe in, 36 letters, or "" for the machine's own.
func Boot() string { return os.Getenv(bootVariable) }

// BootEnv returns the environment variable that makes a process take id for the machine's boot id.
func BootEnv(id string) string { return bootVariable + "=" + id }
