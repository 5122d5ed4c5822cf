package dispatcher

import (
	"slices"

	"weir/bucket"
)

// line is one key's unfinished jobs, in the order they were accepted. A key without jobs has no line, unless there
// is something to be remembered of it.
type line struct {
	key                     string
	part                    *Partition
	limits                  *bucket.KeyLimits
	first                   uint64   // the oldest waiting sequence, 0 for none: most keys wait with one job
	more                    []uint64 // the waiting sequences behind it
	tasks                   []*task  // jobs that left the waiting ones, by sequence
	due                     bucket.Micros
	tat                     bucket.Micros // after the last grant this process knows of, by our clock
	floor                   bucket.Micros // what the ledger knows of tat, by the store's clock
	held                    bucket.Micros // no call before
	why                     string        // of the hold
	binds                   string        // the limit that binds, as the store said last
	place                   int32         // in the timers
	slipped                 bucket.Micros // the pace to go on from, when a call left late; 0 if none did
	tenant                  *tenant
	pass, toll, lent        toll // what its calls have taken, what one took last, and what it has been lent for the next
	inTurn, queued, blocked bool
	called                  bool          // up: it has the turn at the shared limits
	lapses                  bool          // it waits for room to end jobs whose deadlines have passed
	costly                  bool          // a shared limit refused it because of its cost: it is asked for alone
	paused                  bool          // by an operator
	kept                    bool          // without jobs, for what it remembers
	met, unread             bool          // of a partition that is read: it was seen; jobs of it must be read before it is called
	cancels                 int           // of its tasks, those cancelled and not let go of yet
	askAt                   bucket.Micros // the store said not to ask before
	passed                  bool          // what is being asked for is stale: a slot was given back meanwhile, or a call left late
	cold                    bool          // the store must be told tat: it may have forgotten
	pushes                  int16         // pushbacks in a row
	recalled                bool          // the ledger has been asked for its pace
	left                    int32         // calls of the owner before that may still run: see leftover
	unsure                  bool          // a call may have been running when the worker died
	governor                *governor     // nil until a hold of its own, or pushback
}

// phase is how far a task has come. It only grows, except that a forfeited grant and a retry lead back.
type phase int8

const (
	resting  phase = iota // waits for its retry
	staging               // its message is being loaded, its intent being written
	ready                 // may be granted a slot
	asking                // a slot is being asked for
	granted               // waits for its slot
	calling               // its call is running
	settling              // its outcome is being stored
)

// task is a job that is near its call, or past one.
type task struct {
	of        payload // the shell's own of the job, nil until there is one
	line      *line
	seq       uint64
	phase     phase
	policy    *Policy       // it was last made ready by
	grant     bucket.Grant  // by the store's clock
	at, last  bucket.Micros // when its call may start, by ours
	asked     bucket.Micros // when its slot was asked for
	base      bucket.Micros // the offset's, when they were reckoned
	costs     []int64
	deadline  bucket.Micros // 0: none
	notBefore bucket.Micros // of a retry
	failed    string        // how the call went that is to be made again
	limited   bool          // it rests because of a limit: notBefore is not its retry's
	tripped   bool          // its last call failed while the breaker was open: nothing but our own patience makes it wait
	calls     int           // made so far
	deaths    int           // of owners in a row, with its call under way
	denials   int           // its calls that were denied
	spared    int           // calls that failed while the breaker was open, and did not count
	// unseen says that its only call so far was lost: the api may not have seen it, and no job of the key overtakes it.
	unseen    bool
	cramped   bool // being made ready, it waits for room in memory
	unsent    bool // its call has started and the request has not left yet
	called    bool // its call has ended, and its outcome is being stored
	cancelled bool // an operator's word
	lapsed    bool // its deadline passed while it waited: it counts among those that end so
}

// payload is what the shell has of a job. It lets go of what it holds in memory when the job is not near its call any more.
type payload interface{ unload() }

// unload has the shell let go of what it holds in memory for the job's call.
func (t *task) unload() {
	if t.of != nil {
		t.of.unload()
	}
}

func (l *line) waiting() int {
	if l.first == 0 {
		return 0
	}
	return 1 + len(l.more)
}

// enqueue appends a job. Sequences come in rising order.
func (l *line) enqueue(seq uint64) {
	if l.first == 0 {
		l.first = seq
		return
	}
	l.more = append(l.more, seq)
}

// dequeue takes the oldest waiting job.
func (l *line) dequeue() uint64 {
	seq := l.first
	l.first = 0
	if len(l.more) > 0 {
		l.first, l.more = l.more[0], l.more[1:]
		if len(l.more) == 0 {
			l.more = nil
		}
	}
	return seq
}

// extract makes a task of a waiting job, wherever it waits. The job must be there.
func (l *line) extract(seq uint64) *task {
	if l.first == seq {
		l.dequeue()
	} else if i, ok := slices.BinarySearch(l.more, seq); ok {
		l.more = slices.Delete(l.more, i, i+1)
	} else {
		panic("dispatcher: a job that does not wait is to become a task")
	}
	return l.begin(seq)
}

// begin makes a task of a job that waits no longer.
func (l *line) begin(seq uint64) *task {
	t := &task{line: l, seq: seq, deadline: l.part.takeDeadline(seq)}
	l.insert(t)
	return t
}

// insert puts a task at its place by sequence.
func (l *line) insert(t *task) {
	i, _ := slices.BinarySearchFunc(l.tasks, t.seq, func(t *task, seq uint64) int {
		switch {
		case t.seq < seq:
			return -1
		case t.seq > seq:
			return 1
		}
		return 0
	})
	l.tasks = slices.Insert(l.tasks, i, t)
}

// task is the task of a job that is near its call or past one, nil where it waits or is not there.
func (l *line) task(seq uint64) *task {
	for _, t := range l.tasks {
		if t.seq == seq {
			return t
		}
	}
	return nil
}

func (l *line) remove(t *task) {
	if t.cancelled {
		t.cancelled = false
		l.cancels--
	}
	if i := slices.Index(l.tasks, t); i >= 0 {
		l.tasks = slices.Delete(l.tasks, i, i+1)
	}
}

// count is the number of tasks in any of these phases.
func (l *line) count(phases ...phase) int {
	n := 0
	for _, t := range l.tasks {
		if slices.Contains(phases, t.phase) {
			n++
		}
	}
	return n
}

// rank is the position of a sequence among the line's jobs, 0 when it is not there.
func (l *line) rank(seq uint64) int {
	n := 0
	found := false
	for _, t := range l.tasks {
		if t.seq <= seq {
			n++
			found = found || t.seq == seq
		}
	}
	if l.first != 0 && l.first <= seq {
		i, ok := slices.BinarySearch(l.more, seq)
		n += 1 + i
		if ok {
			n++
		}
		found = found || ok || l.first == seq
	}
	if !found {
		return 0
	}
	return n
}

func (l *line) empty() bool { return l.first == 0 && len(l.tasks) == 0 }

// first reports whether the job's next call may be the first that the api sees of it: those behind it wait for that.
func (t *task) first() bool { return t.calls == 0 || t.unseen }

// past reports whether the job's deadline has passed at now.
func (t *task) past(now bucket.Micros) bool { return t.deadline != 0 && t.deadline <= now }

// crowded is until when a line must not be called because calls left under way may be all that its key may have in
// flight; 0 when they are fewer.
func (l *line) crowded() bucket.Micros {
	if l.left == 0 || int64(l.left) < l.limits.InFlight {
		return 0
	}
	return l.part.leftover
}

// free is how many calls more the line may have asked for or under way, and when that may change by itself.
func (l *line) free(now bucket.Micros) (n int64, again bucket.Micros) {
	n, again = l.limits.InFlight-int64(l.count(asking, granted, calling)), never
	if l.left > 0 && l.part.leftover > now {
		n, again = n-int64(l.left), l.part.leftover
	}
	return n, again
}

// busy reports whether a call of the line runs, is about to start, or has an outcome that is not stored yet.
func (l *line) busy() bool { return l.count(granted, calling, settling) > 0 }

// goOnFrom makes the line go on at its key's pace: from a theoretical arrival time that its store has to be told.
func (l *line) goOnFrom(tat bucket.Micros) { l.tat, l.cold = max(l.tat, tat), true }

// remind has a store on another machine, which knows every slot that it granted, be told what the ledger knows, in case the store was set
// back. theirs is by the store's clock.
func (l *line) remind(theirs bucket.Micros) { l.floor, l.cold = theirs, true }

// settle has a job that was found be brought to its end before anything else comes of it.
func (t *task) settle() { t.phase = settling }

// isStaged reports whether the job is being made ready.
func (t *task) isStaged() bool { return t.phase == staging }

// underWay reports whether the job's call runs, or what came of it is not stored yet.
func (t *task) underWay() bool { return t.phase == calling || t.phase == settling }

// rests reports whether the job waits for its next call.
func (t *task) rests() bool { return t.phase == resting }
