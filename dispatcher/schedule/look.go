package schedule

import "weir/bucket"

// An api may give equal jobs one answer (Policy.Reuse). The dispatcher knows which jobs are equal, and which answers
// there are. This file decides when the dispatcher looks up an answer for a job. It does so when the job is made ready.
// It does so earlier if a queue's next job has to wait for its slot, because the job may not need one. The job keeps
// its place: of a queue's jobs of one priority, only the first that was never called is looked at, and no other one
// overtakes it.
//
// If an equal job is being called, a job waits for that job's answer. Meanwhile it keeps its place too, and takes no
// slot and no room.

// Bounds of looks.
const (
	maxLooking = 64     // jobs that are looked at at the same time: the dispatcher loads each
	maxAhead   = 16_384 // jobs that were looked at before their slot and wait for it: a kilobyte each
)

// looks counts the jobs that are being looked at, and lists the queues that wait for a look, each once.
type looks struct {
	waiting []*KeyQueue
	running int
	ahead   int // jobs that were looked at and wait for their slots
}

// hasRoom reports whether another job may be looked at.
func (l *looks) hasRoom(p *Pipeline) bool { return l.running < maxLooking && !p.settlesMany() }

// canGoOn reports whether a queue that waited for a look may have one.
func (l *looks) canGoOn(p *Pipeline) bool { return len(l.waiting) > 0 && l.hasRoom(p) }

// push makes a queue wait for a look.
func (l *looks) push(q *KeyQueue) {
	if !q.entry.looks {
		q.entry.looks = true
		l.waiting = append(l.waiting, q)
	}
}

// pop takes the queue that has waited longest. At least one must be waiting.
func (l *looks) pop() *KeyQueue {
	q := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	q.entry.looks = false
	return q
}

// begin begins a look at a job.
func (l *looks) begin(j *Job) {
	j.Phase, j.looked, j.answered = looking, true, false
	l.running++
	if !j.ahead {
		j.ahead = true
		l.ahead++
	}
}

// end ends a look. It returns false if the job was not being looked at.
func (l *looks) end(j *Job) bool {
	if j.Phase != looking {
		return false
	}
	j.Phase = settling
	l.running--
	return true
}

// leave stops counting a job among those that were looked at and wait for their slots.
func (l *looks) leave(j *Job) {
	if j.ahead {
		j.ahead = false
		l.ahead--
	}
}

// look lets the dispatcher look up an answer for the queue's next job of each priority, unless it has done so already.
func (s *step) look(q *KeyQueue) {
	if !s.policy.Reuse || s.Holds.IsPaused(q) {
		return
	}
	for _, p := range q.waits.Priorities() {
		s.lookOf(q, p)
	}
}

func (s *step) lookOf(q *KeyQueue, of bucket.Priority) {
	j := q.Jobs.nextFirst(of)
	switch {
	case j == nil && !q.waits.Of(of).HasNext():
		return
	case j != nil && (j.Phase != resting || j.looked || j.cancelled || j.Calls > 0 || !j.limited && !j.answered && j.NotBefore > s.now):
		return
	case s.looks.ahead >= maxAhead && (j == nil || !j.answered):
		return // an answer is looked up when the job is made ready
	case !s.looks.hasRoom(&s.Pipe):
		s.looks.push(q)
		return
	}
	if j == nil {
		j = q.begin(q.waits.TakeAhead(of))
		s.turns.Goes(of, 1)
	}
	s.looks.begin(j)
	s.fx.Look = append(s.fx.Look, j)
}

// awaiting returns the queue's next job if this job waits for an equal job's answer, and the next jobs of all other
// priorities do, too. Otherwise it returns nil.
func (q *KeyQueue) awaiting() (first *Job) {
	for _, p := range q.waits.Priorities() {
		switch j := q.Jobs.nextFirst(p); {
		case j == nil && !q.waits.Of(p).HasNext():
		case j == nil || j.Phase != resting || j.awaits == "":
			return nil
		case first == nil || j.spot().Compare(first.spot()) < 0:
			first = j
		}
	}
	return first
}

// Look is what a look at a job found. The zero Look says that no answer was found.
type Look struct {
	Awaits   string // names the equal job for whose answer the job must wait
	Answered bool   // there is an answer, and the job must not end yet
}

// Looked reports what was found for a job that was looked at, or was being made ready. Without an answer the job waits
// for its slot. If it awaits an equal job, it waits for that job's answer. If it is answered, it waits until it is its
// queue's next job.
func (s *Schedule) Looked(j *Job, found Look) {
	s.Unstage(j)
	s.Rest(j, j.NotBefore)
	switch {
	case found.Awaits != "":
		j.awaits, j.looked = found.Awaits, true
	case found.Answered:
		j.looked, j.answered = false, true
	}
}

// Waken ends a job's wait for an equal job's answer. If again is true, there is an answer, and the job is looked at
// again.
func (s *Schedule) Waken(j *Job, again bool) {
	j.awaits, j.looked = "", j.looked && !again
	s.Touch(j.Queue)
}

// Forgo ends a job that was looked at, or was being made ready, with an earlier answer: the job is settling from now
// on. Forgo returns false and changes nothing if an operator has cancelled the job or paused its key, or if a job of
// its priority before it has not begun its first call. The job must then await its turn.
func (s *Schedule) Forgo(j *Job) bool {
	if j.cancelled || s.Holds.IsPaused(j.Queue) || j.Queue.Jobs.nextFirst(j.Priority) != j {
		return false
	}
	s.Unstage(j)
	s.Pipe.forgo(j)
	j.Queue.waits.Forgo(j.Priority, j.tag)
	return true
}

// LooksAhead reports whether an answer is being looked up for the job before its slot is near. It is false while the
// job is made ready.
func (j *Job) LooksAhead() bool { return j.Phase == looking }

// awaitsAnswer reports whether a job must not be made ready, because it is being looked at, waits for an answer, or
// ends with one. reuse says that jobs may end with the answer of an equal job. Meanwhile the jobs of its priority behind it get no first call. Those that were called before may be
// called again. The job may even wait for the answer of one of them, if its own first call was taken back.
func (j *Job) awaitsAnswer(reuse bool) bool {
	return j.Phase == looking || j.Phase == resting && (j.awaits != "" || j.answered && reuse)
}
