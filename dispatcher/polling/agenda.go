package polling

import (
	"container/heap"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// mostUnderWay bounds the polls of an api that run at the same time.
const mostUnderWay = 16

// agenda says which operation is polled when. It is a plain value: its owner locks it and passes the time.
type agenda struct {
	waiting  polls
	underWay int
	next     bucket.Micros // when the rate allows the next poll
	held     bucket.Micros // no poll before then, because the api's answers asked for that
	denials  int           // in a row
	// silent is the time of the first of the latest polls in a row that did not say how their operations stand. It is 0
	// if the last poll said so, or if there is nothing to poll.
	silent bucket.Micros
}

// poll is an operation that waits for its next poll.
type poll struct {
	job      *lane.Job
	due      bucket.Micros
	failures int  // polls in a row that said nothing
	recalled bool // an operator has cancelled the job: it is polled as soon as the rate allows
}

// add adds an operation to those that wait. Its next poll is due at due.
func (a *agenda) add(p *poll, due bucket.Micros) {
	p.due = due
	heap.Push(&a.waiting, p)
}

// take removes and returns the operation that has been due longest. If none may be polled now, p is nil, and again says
// when to call take again. every is the shortest time between two polls of the api.
func (a *agenda) take(now bucket.Micros, every time.Duration) (p *poll, again bucket.Micros) {
	for len(a.waiting) > 0 && !a.waiting[0].job.IsPolled() {
		heap.Pop(&a.waiting) // the operation has ended, or another replica polls it
	}
	if len(a.waiting) == 0 {
		if a.underWay == 0 {
			a.silent = 0
		}
		return nil, schedule.Never
	}
	if a.underWay >= mostUnderWay {
		return nil, schedule.Never // the end of a poll calls take again
	}
	if at := max(a.waiting[0].due, a.next, a.held); at > now {
		return nil, at
	}
	a.underWay++
	a.next = max(a.next, now).Add(every)
	return heap.Pop(&a.waiting).(*poll), now
}

// ended notes that a poll has ended.
func (a *agenda) ended() { a.underWay-- }

// understood notes that an answer to a poll says how an operation stands.
func (a *agenda) understood(p *poll) {
	a.silent, a.denials = 0, 0
	p.failures = 0
}

// longestRest is the longest wait after polls that say nothing. deniedRest is the first wait after a denial.
const (
	longestRest = 5 * time.Minute
	deniedRest  = 10 * time.Second
)

// failed notes that a poll said nothing, and returns how long its operation rests. The first rest is every. Each
// further rest is twice as long as the one before, up to longestRest.
func (a *agenda) failed(p *poll, every time.Duration, now bucket.Micros) time.Duration {
	if a.silent == 0 {
		a.silent = now
	}
	p.failures++
	rest := every
	for range min(p.failures-1, 20) {
		rest = min(2*rest, max(longestRest, every))
	}
	return rest
}

// lastTries is how many polls in a row must say nothing before weir gives up an operation whose time is over. One is
// not enough: weir may have just started, and may not reach the api yet.
const lastTries = 3

// isGivenUp reports whether weir gives up an operation whose time is over, after a poll with this finding.
func (p *poll) isGivenUp(means httpcall.Finding) bool {
	return means == httpcall.OperationRunning || p.failures+1 >= lastTries
}

// denied holds all polls, because the api denies weir's access. The hold lasts for deniedRest, and twice as long after
// each further denial in a row, up to longestRest. denied returns when polls go on, and whether this is the first
// denial in a row.
func (a *agenda) denied(now bucket.Micros) (until bucket.Micros, first bool) {
	a.denials++
	rest := deniedRest
	for range min(a.denials-1, 20) {
		rest = min(2*rest, longestRest)
	}
	a.held = max(a.held, now.Add(rest))
	return a.held, a.denials == 1
}

// hold holds all polls until a time for which the api asked.
func (a *agenda) hold(until bucket.Micros) { a.held = max(a.held, until) }

// hurry makes an operation due at once.
func (a *agenda) hurry(j *lane.Job, now bucket.Micros) {
	for i, p := range a.waiting {
		if p.job == j {
			p.due, p.recalled = 0, true
			heap.Fix(&a.waiting, i)
			return
		}
	}
}

// silence returns for how long no poll has said how its operation stands, 0 if the last one did.
func (a *agenda) silence(now bucket.Micros) time.Duration {
	if a.silent == 0 {
		return 0
	}
	return max(0, a.silent.Until(now))
}

// polls is a heap of operations by when they are due.
type polls []*poll

func (p polls) Len() int           { return len(p) }
func (p polls) Less(i, j int) bool { return p[i].due < p[j].due }
func (p polls) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *polls) Push(x any) { *p = append(*p, x.(*poll)) }

// Pop implements heap.Interface.
func (p *polls) Pop() any {
	all := *p
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*p = all[:len(all)-1]
	return last
}
