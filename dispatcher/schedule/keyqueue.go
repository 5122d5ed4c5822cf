package schedule

import (
	"slices"

	"weir/bucket"
)

// line is one key's unfinished jobs, in the order they were accepted. A key without jobs has no line, unless there
// is something to be remembered of it.
type KeyQueue struct {
	Key                            string
	Partition                      *Partition
	Limits                         *bucket.KeyLimits
	first                          uint64   // the oldest waiting sequence, 0 for none: most keys wait with one job
	more                           []uint64 // the waiting sequences behind it
	Jobs                           []*Job   // jobs that left the waiting ones, by sequence
	due                            bucket.Micros
	TAT                            bucket.Micros // after the last grant this process knows of, by our clock
	floor                          bucket.Micros // what the ledger knows of tat, by the store's clock
	held                           bucket.Micros // no call before
	why                            string        // of the hold
	binds                          string        // the limit that binds, as the store said last
	place                          int32         // in the timers
	slipped                        bucket.Micros // the pace to go on from, when a call left late; 0 if none did
	tenant                         *tenant
	virtualTime, lastService, lent serviceTime // what its calls have taken, what one took last, and what it has been lent for the next
	inTurn, queued, blocked        bool
	called                         bool          // up: it has the turn at the shared limits
	lapses                         bool          // it waits for room to end jobs whose deadlines have passed
	costly                         bool          // a shared limit refused it because of its cost: it is asked for alone
	paused                         bool          // by an operator
	kept                           bool          // without jobs, for what it remembers
	Met, Unread                    bool          // of a partition that is read: it was seen; jobs of it must be read before it is called
	cancels                        int           // of its tasks, those cancelled and not let go of yet
	askAt                          bucket.Micros // the store said not to ask before
	passed                         bool          // what is being asked for is stale: a slot was given back meanwhile, or a call left late
	cold                           bool          // the store must be told tat: it may have forgotten
	pushes                         int16         // pushbacks in a row
	LookedUp                       bool          // the ledger has been asked for its pace
	Orphaned                       int32         // calls of the owner before that may still run: see leftover
	Unsure                         bool          // a call may have been running when the worker died
	governor                       *governor     // nil until a hold of its own, or pushback
}

// phase is how far a task has come. It only grows, except that a forfeited grant and a retry lead back.
type Phase int8

const (
	resting  Phase = iota // waits for its retry
	staging               // its message is being loaded, its intent being written
	ready                 // may be granted a slot
	asking                // a slot is being asked for
	granted               // waits for its slot
	calling               // its call is running
	Settling              // its outcome is being stored
)

// task is a job that is near its call, or past one.
type Job struct {
	Of        Payload // the shell's own of the job, nil until there is one
	Queue     *KeyQueue
	Seq       uint64
	Phase     Phase
	Policy    *Policy       // it was last made ready by
	Grant     bucket.Grant  // by the store's clock
	At, last  bucket.Micros // when its call may start, by ours
	asked     bucket.Micros // when its slot was asked for
	base      bucket.Micros // the offset's, when they were reckoned
	Costs     []int64
	Deadline  bucket.Micros // 0: none
	NotBefore bucket.Micros // of a retry
	Failed    string        // how the call went that is to be made again
	limited   bool          // it rests because of a limit: notBefore is not its retry's
	tripped   bool          // its last call failed while the breaker was open: nothing but our own patience makes it wait
	Calls     int           // made so far
	Deaths    int           // of owners in a row, with its call under way
	denials   int           // its calls that were denied
	spared    int           // calls that failed while the breaker was open, and did not count
	// unseen says that its only call so far was lost: the api may not have seen it, and no job of the key overtakes it.
	Unseen    bool
	Cramped   bool // being made ready, it waits for room in memory
	Unsent    bool // its call has started and the request has not left yet
	called    bool // its call has ended, and its outcome is being stored
	cancelled bool // an operator's word
	lapsed    bool // its deadline passed while it waited: it counts among those that end so
}

// payload is what the shell has of a job. It lets go of what it holds in memory when the job is not near its call any more.
type Payload interface{ Unload() }

// unload has the shell let go of what it holds in memory for the job's call.
func (t *Job) unload() {
	if t.Of != nil {
		t.Of.Unload()
	}
}

func (l *KeyQueue) waiting() int {
	if l.first == 0 {
		return 0
	}
	return 1 + len(l.more)
}

// enqueue appends a job. Sequences come in rising order.
func (l *KeyQueue) Enqueue(seq uint64) {
	if l.first == 0 {
		l.first = seq
		return
	}
	l.more = append(l.more, seq)
}

// dequeue takes the oldest waiting job.
func (l *KeyQueue) dequeue() uint64 {
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
func (l *KeyQueue) Extract(seq uint64) *Job {
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
func (l *KeyQueue) begin(seq uint64) *Job {
	t := &Job{Queue: l, Seq: seq, Deadline: l.Partition.takeDeadline(seq)}
	l.insert(t)
	return t
}

// insert puts a task at its place by sequence.
func (l *KeyQueue) insert(t *Job) {
	i, _ := slices.BinarySearchFunc(l.Jobs, t.Seq, func(t *Job, seq uint64) int {
		switch {
		case t.Seq < seq:
			return -1
		case t.Seq > seq:
			return 1
		}
		return 0
	})
	l.Jobs = slices.Insert(l.Jobs, i, t)
}

// task is the task of a job that is near its call or past one, nil where it waits or is not there.
func (l *KeyQueue) Job(seq uint64) *Job {
	for _, t := range l.Jobs {
		if t.Seq == seq {
			return t
		}
	}
	return nil
}

func (l *KeyQueue) remove(t *Job) {
	if t.cancelled {
		t.cancelled = false
		l.cancels--
	}
	if i := slices.Index(l.Jobs, t); i >= 0 {
		l.Jobs = slices.Delete(l.Jobs, i, i+1)
	}
}

// count is the number of tasks in any of these phases.
func (l *KeyQueue) count(phases ...Phase) int {
	n := 0
	for _, t := range l.Jobs {
		if slices.Contains(phases, t.Phase) {
			n++
		}
	}
	return n
}

// rank is the position of a sequence among the line's jobs, 0 when it is not there.
func (l *KeyQueue) Rank(seq uint64) int {
	n := 0
	found := false
	for _, t := range l.Jobs {
		if t.Seq <= seq {
			n++
			found = found || t.Seq == seq
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

func (l *KeyQueue) Empty() bool { return l.first == 0 && len(l.Jobs) == 0 }

// first reports whether the job's next call may be the first that the api sees of it: those behind it wait for that.
func (t *Job) First() bool { return t.Calls == 0 || t.Unseen }

// past reports whether the job's deadline has passed at now.
func (t *Job) Past(now bucket.Micros) bool { return t.Deadline != 0 && t.Deadline <= now }

// crowded is until when a line must not be called because calls left under way may be all that its key may have in
// flight; 0 when they are fewer.
func (l *KeyQueue) crowded() bucket.Micros {
	if l.Orphaned == 0 || int64(l.Orphaned) < l.Limits.InFlight {
		return 0
	}
	return l.Partition.Leftover
}

// free is how many calls more the line may have asked for or under way, and when that may change by itself.
func (l *KeyQueue) free(now bucket.Micros) (n int64, again bucket.Micros) {
	n, again = l.Limits.InFlight-int64(l.count(asking, granted, calling)), Never
	if l.Orphaned > 0 && l.Partition.Leftover > now {
		n, again = n-int64(l.Orphaned), l.Partition.Leftover
	}
	return n, again
}

// busy reports whether a call of the line runs, is about to start, or has an outcome that is not stored yet.
func (l *KeyQueue) Busy() bool { return l.count(granted, calling, Settling) > 0 }

// goOnFrom makes the line go on at its key's pace: from a theoretical arrival time that its store has to be told.
func (l *KeyQueue) GoOnFrom(tat bucket.Micros) { l.TAT, l.cold = max(l.TAT, tat), true }

// remind has a store on another machine, which knows every slot that it granted, be told what the ledger knows, in case the store was set
// back. theirs is by the store's clock.
func (l *KeyQueue) Remind(theirs bucket.Micros) { l.floor, l.cold = theirs, true }

// settle has a job that was found be brought to its end before anything else comes of it.
func (t *Job) Settle() { t.Phase = Settling }

// isStaged reports whether the job is being made ready.
func (t *Job) IsStaged() bool { return t.Phase == staging }

// underWay reports whether the job's call runs, or what came of it is not stored yet.
func (t *Job) UnderWay() bool { return t.Phase == calling || t.Phase == Settling }

// rests reports whether the job waits for its next call.
func (t *Job) Rests() bool { return t.Phase == resting }
