package schedule

import (
	"slices"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/schedule/turns"
)

// KeyQueue holds one key's unfinished jobs, in the order in which they were accepted. A key without jobs has no queue,
// unless the schedule must remember something about it. The schedule's owner reads and sets the exported fields under
// the schedule's lock.
type KeyQueue struct {
	Key       string
	Partition *Partition
	Limits    *bucket.KeyLimits
	Jobs      Jobs

	waits backlog.Backlog
	keyPace
	seats   turns.Seats[*KeyQueue]
	brake   brake
	entry   entry
	holdups holdups // what kept the queue's jobs from being called lately

	polled  operations // jobs whose operations go on at the api
	held    int32      // operations of the queue that hold their slots
	cancels bool       // some of its jobs may be cancelled and not have ended yet
	kept    bool       // the queue has no jobs, and is kept for what it remembers
	Met     bool       // while its partition is read: a job was seen
	Unread  bool       // while its partition is read: more must be read first

	arrived uint64 // jobs that came since the queue was created, except those that a takeover found
}

// Phase is how far a job has come. Phases are compared, so they are in the order of a job's path (doc.go).
type Phase int8

const (
	resting  Phase = iota // waits for its retry
	looking               // an earlier answer is being looked for
	staging               // its message is being loaded, its intent being written
	ready                 // may be granted a slot
	asking                // a slot is being asked for
	granted               // waits for its slot
	calling               // its call is running
	settling              // its outcome is being stored
	polled                // the api has accepted it, and is polled
	packed                // goes in one call with the job that leads its pack
)

// Job is what the schedule knows of one job that is near its call, or past it. Of a waiting job the schedule knows only
// the sequence.
type Job struct {
	Of          Payload // the dispatcher's data of the job, nil until there is some
	Queue       *KeyQueue
	Seq         uint64
	place       backlog.Place
	tag         backlog.Tag // 0: its key had only normal jobs
	Priority    bucket.Priority
	turn        bucket.Priority // whose turn at shared limits it takes once it is made ready: see turnOf
	Phase       Phase
	Policy      *Policy       // the policy by which it was last made ready
	Grant       bucket.Grant  // by the store's clock
	At, last    bucket.Micros // when and until when its call may start, by our clock
	asked       bucket.Micros // when its slot was asked for
	base        bucket.Micros // offset.base when at and last were computed
	limits.Call               // what the shared limits know of its call
	Deadline    bucket.Micros // 0: none
	NotBefore   bucket.Micros // the time of its retry, or the time that its producer asked for
	Failed      string        // how the last call failed, if another one follows
	Refused     string        // the limit that its cost can never pass, or the spent budget that ends it
	limited     bool          // it rests because of a limit: NotBefore is not the time of a retry
	tripped     bool          // its last call failed while the breaker was open: an operator may end its wait
	yielded     int           // breaker.opened when it last let other jobs go first
	Calls       int           // calls made so far
	Deaths      int           // owners in a row that died with its call under way
	judged      bucket.Micros // when the schedule learned that its last call had ended
	denials     int           // calls that were denied
	// Unseen says that its only call so far was lost: the api may not have seen it, and no job of the key
	// overtakes it.
	Unseen    bool
	Cramped   bool   // it is being made ready and waits for memory
	Unsent    bool   // its call has started and the request has not left yet
	missed    bool   // its call did not start in its slot
	leaving   bool   // it counts in exit.leaving
	ended     bool   // its call has ended, and its outcome is being stored
	cancelled bool   // an operator cancelled it
	holds     bool   // its operation holds its slot
	looked    bool   // an earlier answer was looked up, or is being looked up
	answered  bool   // an earlier answer was found before its turn; it is looked up again in its turn
	ahead     bool   // it was looked at, and waits for its slot: it counts in looks.ahead
	members   []*Job // the other jobs of the pack that it leads
	carries   bool   // one of the members was never called
	Bond      *Bond  // the pack in which it must be called again; nil for none
	awaits    string // names the equal job for whose answer it waits; "": it waits for none
	lapsed    bool   // its deadline passed while it waited: it counts in Queues.ending
}

// Payload is the dispatcher's data of a job. Unload frees the memory that it holds, because the job is not near its
// call any more.
type Payload interface{ Unload() }

// unload frees what the dispatcher holds in memory for the job's call.
func (j *Job) unload() {
	if j.Of != nil {
		j.Of.Unload()
	}
}

// Extract removes a sequence from the waiting ones, at any place, and makes a Job of it. It panics if the sequence does
// not wait.
func (s *Schedule) Extract(q *KeyQueue, seq uint64) *Job {
	at, notBefore, was := q.waits.Extract(seq)
	switch was {
	case backlog.Absent:
		panic("schedule: a job that does not wait is to leave the waiting ones")
	case backlog.Early:
		s.census.early--
	case backlog.Due:
		s.turns.Goes(at.Of, 1)
	}
	j := q.begin(at)
	j.NotBefore = notBefore
	return j
}

// begin makes a Job of a sequence that was removed from the waiting ones.
func (q *KeyQueue) begin(s backlog.Spot) *Job {
	j := q.jobOf(s)
	q.insert(j)
	return j
}

// jobOf makes a Job of a sequence, and does not add it to the queue's jobs.
func (q *KeyQueue) jobOf(s backlog.Spot) *Job {
	return &Job{Queue: q, Seq: s.Seq, place: s.Place, Priority: s.Of, tag: s.At, Deadline: q.Partition.takeDeadline(s.Seq)}
}

// Job returns the Job of a sequence. It returns nil if the sequence still waits in the backlog or is not in the queue.
func (q *KeyQueue) Job(seq uint64) *Job {
	for _, j := range q.Jobs {
		if j.Seq == seq {
			return j
		}
	}
	if _, m := q.Jobs.leaderOf(seq); m != nil {
		return m
	}
	return q.polled[seq]
}

// turnOf returns the priority whose turn at shared limits a job takes, or would take. This is the job's own priority.
// But in a slow key (isSlow) it is the priority whose turn it was when the job was made ready.
func (j *Job) turnOf() bucket.Priority {
	if j.Phase < staging {
		return j.Priority
	}
	return j.turn
}

func (q *KeyQueue) remove(j *Job) {
	j.cancelled = false
	if i := slices.Index(q.Jobs, j); i >= 0 {
		q.Jobs = slices.Delete(q.Jobs, i, i+1)
	}
}

// Seats returns the queue's seats among the turns.
func (q *KeyQueue) Seats() *turns.Seats[*KeyQueue] { return &q.seats }

// Ungranted returns the number of jobs that take the turn of a priority, are on their way to a slot and have none yet.
func (q *KeyQueue) Ungranted(p bucket.Priority) int {
	return q.Jobs.countOf(classSet(0).with(p), staging, ready, asking)
}

// Rank returns the position of a sequence among the queue's jobs, 0 if the queue does not have it. It also returns the
// earliest time of the job's call, 0 for at once. A polled job has position 1: no job is called before it. All others
// come behind the polled ones. A job that is not due yet comes behind all jobs that may be called before it is due.
func (q *KeyQueue) Rank(seq uint64) (n int, notBefore bucket.Micros) {
	if q.polled[seq] != nil {
		return 1, 0
	}
	if n, notBefore = q.rank(seq); n > 0 {
		n += len(q.polled)
	}
	return n, notBefore
}

// rank is Rank among the jobs that are not polled.
func (q *KeyQueue) rank(seq uint64) (n int, notBefore bucket.Micros) {
	lead, _ := q.Jobs.leaderOf(seq)
	for i, j := range q.near() {
		if j.Seq == seq || j == lead {
			n = i + 1
			if !q.precedes(j) {
				n += q.waits.Before(j.spot())
			}
			return n, j.NotBefore
		}
	}
	at, early, is := q.waits.Find(seq)
	switch is {
	case backlog.Absent:
		return 0, 0
	case backlog.Early:
		return q.uncalled() - q.waits.NotDue() + q.waits.EarlyBefore(early) + 1, early.At
	case backlog.Due:
	}
	n = 1 + q.waits.Before(at)
	for _, j := range q.Jobs {
		if q.precedes(j) || j.spot().Compare(at) < 0 {
			n++
		}
	}
	return n, 0
}

// precedes reports whether a job has its slot or is past it, and so comes before all jobs of its key that have no slot,
// whatever their priorities. In a key with only normal jobs it returns false, because q.Jobs is in that order already.
func (q *KeyQueue) precedes(j *Job) bool { return q.waits.IsMixed() && j.Phase >= granted }

// near returns the queue's Jobs in the order in which reports list them: first those that precede all others.
func (q *KeyQueue) near() []*Job {
	if !q.waits.IsMixed() {
		return q.Jobs
	}
	jobs := slices.Clone(q.Jobs)
	slices.SortStableFunc(jobs, func(a, b *Job) int {
		switch x, y := q.precedes(a), q.precedes(b); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	return jobs
}

// has reports whether a sequence is among the queue's jobs.
func (q *KeyQueue) has(seq uint64) bool {
	n, _ := q.Rank(seq)
	return n > 0
}

// Waits reports whether a sequence waits in the backlog.
func (q *KeyQueue) Waits(seq uint64) bool { return q.Job(seq) == nil && q.has(seq) }

// Seqs yields the sequences of all jobs.
func (q *KeyQueue) Seqs(yield func(seq uint64) bool) {
	for _, j := range q.Jobs {
		if !yield(j.Seq) {
			return
		}
	}
	for seq := range q.polled {
		if !yield(seq) {
			return
		}
	}
	for _, m := range q.Jobs.packed {
		if !yield(m.Seq) {
			return
		}
	}
	q.waits.Seqs(yield)
}

// Idle yields the queue's jobs that rest, and those that are polled.
func (q *KeyQueue) Idle(yield func(*Job) bool) {
	for _, j := range q.Jobs {
		if j.Phase == resting && !yield(j) {
			return
		}
	}
	q.polled.all(yield)
}

// Empty reports whether the key has no unfinished jobs.
func (q *KeyQueue) Empty() bool { return q.Depth() == 0 }

// First reports whether the job's next call may be the first that the api sees of it, or of a member of its pack. The
// jobs behind it wait for that call.
func (j *Job) First() bool { return j.Calls == 0 || j.Unseen || j.carries }

// waitsBefore reports whether a job of j's priority waits in the backlog that comes before j. That is so after a
// takeover, if j has a history and the other job has none: the former owner may have made them ready together, and died
// when only the intent of j was stored.
func (q *KeyQueue) waitsBefore(j *Job) bool {
	next, ok := q.waits.Of(j.Priority).Next()
	return ok && next.Compare(j.place) < 0
}

// nextFirst returns the first job of a priority whose first call has not begun. It returns nil if that job is still in
// the backlog, or if there is none.
func (q *KeyQueue) nextFirst(of bucket.Priority) *Job {
	j := q.Jobs.nextFirst(of)
	if j != nil && q.waitsBefore(j) {
		return nil
	}
	return j
}

// Past reports whether the job's deadline has passed at now.
func (j *Job) Past(now bucket.Micros) bool { return j.Deadline != 0 && j.Deadline <= now }

// crowded returns the time until which a queue must not be called, because calls of the previous owner may use all of
// the key's calls in flight. It returns 0 if they cannot.
func (q *KeyQueue) crowded() bucket.Micros {
	if q.Orphaned == 0 || int64(q.Orphaned) < q.Limits.InFlight {
		return 0
	}
	return q.Partition.Leftover
}

// free returns how many more calls the queue may have in flight or ask for. again is the time at which this number
// grows without an event, Never if it does not.
func (q *KeyQueue) free(now bucket.Micros) (n int64, again bucket.Micros) {
	return q.Limits.InFlight - int64(q.Jobs.count(asking, granted, calling)) - q.lent(now), q.returned(now)
}

// lent returns how many of the key's slots its jobs cannot get, because operations hold them or calls of the previous
// owner may still run.
func (q *KeyQueue) lent(now bucket.Micros) int64 {
	n := int64(q.held)
	if q.Partition.Leftover > now {
		n += int64(q.Orphaned)
	}
	return n
}

// lentUntil returns until when the queue's jobs can get none of its slots, 0 if they can. While operations hold all
// slots it returns Never, because nothing tells when an operation ends.
func (q *KeyQueue) lentUntil(now bucket.Micros) bucket.Micros {
	switch {
	case int64(q.held) >= q.Limits.InFlight:
		return Never
	case q.lent(now) >= q.Limits.InFlight:
		return q.Partition.Leftover
	}
	return 0
}

// returned returns when the calls of the previous owner no longer count, Never if there are none.
func (q *KeyQueue) returned(now bucket.Micros) bucket.Micros {
	if q.Orphaned == 0 || q.Partition.Leftover <= now {
		return Never
	}
	return q.Partition.Leftover
}

// Settle marks as settling a job that was found in the stream. The schedule then starts no call for it.
func (j *Job) Settle() { j.Phase = settling }

// IsStaged reports whether the job is being made ready.
func (j *Job) IsStaged() bool { return j.Phase == staging }

// UnderWay reports whether the job's call runs, or its outcome is not stored yet.
func (j *Job) UnderWay() bool { return j.Phase == calling || j.Phase == settling }

// UnderWay returns the job of a sequence if its call or the call of its pack runs, or if its outcome is not stored yet;
// otherwise nil.
func (q *KeyQueue) UnderWay(seq uint64) *Job {
	j, leads := q.Job(seq), q.Job(seq)
	if leader, _ := q.Jobs.leaderOf(seq); leader != nil {
		leads = leader
	}
	if j == nil || !leads.UnderWay() {
		return nil
	}
	return j
}

// Rests reports whether the job waits for its next call.
func (j *Job) Rests() bool { return j.Phase == resting }

// Early returns how many of a queue's jobs are not due at now.
func (q *KeyQueue) Early(now bucket.Micros) int { return q.waits.NotDueAt(now) }

// Delays reports whether jobs of the queue asked not to be called before a time. When the partition has been read, the
// schedule must look at such a queue: a job may be due although no later job has come to release it.
func (q *KeyQueue) Delays() bool { return q.waits.HasEarly() }

// nextDue returns when a queue's first early job is due, Never while the partition is still being read.
func (q *KeyQueue) nextDue() bucket.Micros {
	if q.Partition.Reading {
		return Never
	}
	return q.waits.FirstDue()
}

// keyPace is the state of a key's own rate: up to when its slots are used, and when it may ask for the next. TAT
// decreases only when slots are given back, or under new rules. The store knows the pace, unless the pace is cold.
type keyPace struct {
	TAT      bucket.Micros // after the last grant that this process knows of, by our clock
	floor    bucket.Micros // the TAT that the ledger has, by the store's clock
	slipped  bucket.Micros // the TAT of a call that left late, from which to continue; 0 if none did
	askAt    bucket.Micros // the store said not to ask before then
	binds    string        // the limit that, by the store's last answer, refuses slots
	Noted    bucket.Micros // the TAT that the flight recorder noted for lost calls, 0 if none
	Orphaned int32         // calls of the previous owner that may still run: see Partition.Leftover
	cold     bool          // the next ask must carry TAT: the store may have forgotten it
	passed   bool          // the ask under way is stale: since it was sent, a slot was given back or a call left late
	LookedUp bool          // the ledger has been asked for the pace
	Unsure   bool          // a call may have run when its process died: the pace is not known
}

// GoOnFrom makes the queue continue its key's pace from a theoretical arrival time. The next ask reports it to the
// store.
func (p *keyPace) GoOnFrom(tat bucket.Micros) { p.TAT, p.cold = max(p.TAT, tat), true }

// Remind makes the queue's next ask tell a store on another machine what the ledger knows of the pace, in case that
// store has lost its latest state. Without a loss, such a store knows every slot that it granted. theirs is the
// ledger's TAT by the store's clock.
func (p *keyPace) Remind(theirs bucket.Micros) { p.floor, p.cold = theirs, true }

// slip notes that a granted call left late, at now. The calls behind it must not come too close to it.
func (p *keyPace) slip(g bucket.Grant, now bucket.Micros) { p.slipped = g.TAT - g.At + now }

// takeSlip makes the pace continue from the call that left late.
func (p *keyPace) takeSlip() {
	p.GoOnFrom(p.slipped)
	p.slipped = 0
}

// confirm applies a grant: the store knows the pace now.
func (p *keyPace) confirm(tat bucket.Micros) { p.TAT, p.cold = tat, false }

// refused notes the limit that refused the queue a slot. askAt is the time before which the queue must not ask again
// because of its own rate, 0 for none.
func (p *keyPace) refused(by string, askAt bucket.Micros) { p.binds, p.askAt = by, askAt }

// lower bounds the TAT by that of a full bucket under new rules. full is the latter by our clock, and theirs by the
// store's clock, 0 if the store's clock is not known. The queue may ask again at once.
func (p *keyPace) lower(full, theirs bucket.Micros) {
	p.TAT, p.slipped, p.askAt = min(p.TAT, full), min(p.slipped, full), 0
	if theirs != 0 {
		p.floor = min(p.floor, theirs)
	}
}

// untold returns the TAT that the store does not know yet; 0 if it knows the pace.
func (p *keyPace) untold() bucket.Micros {
	if !p.cold {
		return 0
	}
	return p.TAT
}

// spot returns the job's place among all jobs of its key.
func (j *Job) spot() backlog.Spot { return backlog.Spot{Place: j.place, Of: j.Priority, At: j.tag} }

// insert adds a Job at its place. It keeps the jobs of a priority in the order of their places, even if their tags were
// computed with other weights.
func (q *KeyQueue) insert(j *Job) {
	s := j.spot()
	if !q.waits.IsMixed() {
		i, _ := slices.BinarySearchFunc(q.Jobs, s, func(j *Job, s backlog.Spot) int { return j.place.Compare(s.Place) })
		q.Jobs = slices.Insert(q.Jobs, i, j)
		return
	}
	least, most := 0, len(q.Jobs)
	for i, other := range q.Jobs {
		switch {
		case other.Priority != j.Priority:
		case other.place.Compare(j.place) < 0:
			least = i + 1
		default:
			most = min(most, i)
		}
	}
	for most > least && s.Compare(q.Jobs[most-1].spot()) < 0 {
		most--
	}
	q.Jobs = slices.Insert(q.Jobs, most, j)
}

// Behind returns how many of the key's jobs in the schedule would be called after a new job of priority p. The new job
// must not be called before at; at is 0 if it may be called at once.
func (v View) Behind(key string, at bucket.Micros, p bucket.Priority) (n int) {
	q := v.s.Queues.byKey[key]
	if q == nil {
		return 0
	}
	if at > v.now {
		return q.waits.NotDueAt(at)
	}
	n = q.waits.NotDueAt(v.now)
	if !q.waits.IsMixed() && p == bucket.Normal {
		return n
	}
	waiting, tag := q.waits.Behind(p, v.s.policy.Rules.Weights)
	n += waiting
	for _, j := range q.Jobs {
		if j.Priority != p && j.Phase < granted && j.spot().Compare(backlog.Spot{Of: p, At: tag}) > 0 {
			n++
		}
	}
	return n
}

// tidy drops what a queue keeps for other priorities if it has only normal jobs again.
func (s *step) tidy(q *KeyQueue) {
	if _, idle := q.seats.IsIdle(); !idle {
		return
	}
	if slices.ContainsFunc(q.Jobs, func(j *Job) bool { return j.Priority != bucket.Normal || j.turnOf() != bucket.Normal }) {
		return
	}
	if !q.waits.Unmix(q.Empty()) {
		return
	}
	s.turns.LeaveClasses(q)
	for _, j := range q.Jobs {
		j.tag = 0 // the jobs are in order without tags
	}
}

// classSet is a set of priorities.
type classSet uint8

const allClasses classSet = 1<<len(bucket.Priorities) - 1

func (s classSet) has(p bucket.Priority) bool { return s>>(p-bucket.High)&1 != 0 }

func (s classSet) with(p bucket.Priority) classSet { return s | 1<<(p-bucket.High) }

func (s classSet) without(p bucket.Priority) classSet { return s &^ (1 << (p - bucket.High)) }
