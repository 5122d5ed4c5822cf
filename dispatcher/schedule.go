package dispatcher

import (
	"iter"
	"maps"
	"time"

	"weir/bucket"
)

// pace are the times and bounds the schedule works with.
type pace struct {
	lead  time.Duration // how long before its slot a job is made ready
	ahead time.Duration // how long before its time a slot is asked for
	late  time.Duration // how long after its time a slot may still be used

	maxStaged int // jobs made ready at once, over all keys
	maxCalls  int // calls running at once, over all keys
}

// schedule decides which call may start when. It is a plain value: time comes in as now, and what is to be done comes
// out as effects. Its owner locks it.
//
// The way of a job through it: waiting in its line, then a task that is staged (message loaded, intent stored), ready,
// asking, granted, calling, settling, and gone; or back to resting for a retry.
//
// What holds at all times:
//
//	S1  a task starts only from a grant, not before the grant's time and at most late after it
//	S2  tasks of a line are granted in the order of their sequences, retries excepted
//	S3  asking, granted and calling tasks of a line are together at most its in_flight
//	S4  every line with something to do is timed, or in turn, or waits for an answer that will touch it
type schedule struct {
	pace     pace
	rules    *bucket.Rules
	policy   *Policy // what jobs are made ready by; the rules are its
	lines    map[string]*line
	timers   timers
	turns    []*line // lines with something to do now
	queue    rota    // lines that wait for room to make a job ready
	lapses   []*line // lines with more jobs past their deadlines than may end at once
	lapsing  int     // jobs that end so now
	blocked  turns   // lines that wait for a shared limit or for a call to end
	tenants  map[string]*tenant
	units    []float64     // of the shared limits; see unitsOf
	until    bucket.Micros // when the shared limit is to be asked again
	by       string        // its name
	held     bucket.Micros // no call of the api before
	why      string
	spent    bucket.Micros // a budget that is spent begins anew then; 0: none is
	pushes   int16         // pushbacks in a row
	breaker  breaker       // of the api
	welcome  bucket.Micros // when the last call started that the api answered in order
	took     time.Duration // to make a job ready, lately
	callTime time.Duration // usual, of the api's calls
	habits   habits
	levels   []bucket.Level // of the shared limits, when they were last looked at
	suspects suspects
	probe    *task              // the one call that may be made while the breaker is not closed
	governor governor           // of the api, where pushback holds it
	heldKeys map[*line]struct{} // with a hold that may still last
	paused   pauses
	jobs     int  // unfinished
	kept     int  // lines without jobs
	staged   int  // tasks from staging to granted
	calls    int  // tasks calling
	settling int  // of the calls that ended, those whose outcome is not stored yet
	drain    bool // nothing new may start
	barred   bool // this process has not the right to call now

	// tatOf is the theoretical arrival time that the store knows of a key, 0 if none.
	tatOf func(key string) bucket.Micros

	clock    StoreClock
	offset   offset        // of our clock to the store's, where that is another
	trip     time.Duration // to that store and back, lately
	rounds   int           // of asks under way
	failures int           // rounds in a row without an answer
	downAt   bucket.Micros // when the first of them failed

	forfeited int64
}

func newSchedule(policy *Policy, p pace, tatOf func(key string) bucket.Micros) *schedule {
	s := &schedule{pace: p, policy: policy, rules: &policy.Rules, lines: map[string]*line{}, heldKeys: map[*line]struct{}{}, tatOf: tatOf}
	s.paused.keys = map[string]Pause{}
	s.callTime = time.Second // until it is known
	s.reseat()
	return s
}

// effects are what the shell must do after a step.
type effects struct {
	load    []*task // load their messages, store their intents, then call loaded
	start   []*task // call now
	expire  []*task // their deadline has passed
	cancel  []*task // by an operator's word
	resumed []*line // their hold is over; nil stands for the api
	stale   []*task // made ready in vain: they rest, and will be made ready again
	unused  []bucket.Use
	asks    []bucket.Ask
	asked   [][]*task // the tasks each ask is for
}

// line returns the key's line, making it when there is none.
func (s *schedule) line(key string, p *Partition) *line {
	l := s.lines[key]
	if l == nil {
		l = &line{key: key, part: p, place: notTimed, limits: s.limitsOf(key), tat: s.knownTAT(key)}
		l.cold = l.tat != 0 // it may be known from the ledger of a former process, of whose slots the store knows nothing
		_, l.paused = s.paused.keys[key]
		s.join(l)
		s.lines[key] = l
	}
	return l
}

// limitsOf shares one value among all keys without an override.
func (s *schedule) limitsOf(key string) *bucket.KeyLimits {
	if len(s.rules.Overrides) == 0 {
		return &s.rules.Key
	}
	limits := s.rules.For(key)
	return &limits
}

// touch marks a line as having something to do.
func (s *schedule) touch(l *line) {
	if l.tenant == nil {
		return // it was let go of, without jobs: who still knew it, a suspect's turn perhaps, has nothing to tell it
	}
	if !l.inTurn {
		l.inTurn = true
		s.turns = append(s.turns, l)
	}
}

// push takes a job in.
func (s *schedule) push(key string, seq uint64, p *Partition) *line {
	l := s.line(key, p)
	l.enqueue(seq)
	s.jobs++
	s.countKept(l)
	s.touch(l)
	return l
}

// allow says whether calls may start: without the right to, what was granted is given back when it comes due, and
// nothing is made ready or asked for.
func (s *schedule) allow(may bool) {
	if s.barred == !may {
		return
	}
	s.barred = !may
	s.touchAll()
}

// step does all that can be done at now.
func (s *schedule) step(now bucket.Micros) effects {
	var fx effects
	for s.timers.next() <= now {
		l := s.timers[0]
		s.timers.set(l, never)
		s.touch(l)
	}
	if s.held != 0 && s.held <= now {
		s.held = 0
		s.governor.restart(now)
		fx.resumed = append(fx.resumed, nil)
	}
	if s.spent != 0 && s.spent <= now {
		s.spent = 0
		fx.resumed = append(fx.resumed, nil)
	}
	s.unblock(now)
	s.lapseMore(now, &fx)
	for s.queue.size > 0 && s.room() && len(fx.asks) < maxAsks {
		l := s.queue.pop()
		l.queued = false
		s.advance(l, now, &fx)
	}
	for n := len(s.turns); n > 0 && len(fx.asks) < maxAsks; n-- {
		l := s.turns[0]
		s.turns[0] = nil
		s.turns = s.turns[1:]
		l.inTurn = false
		s.advance(l, now, &fx)
	}
	if len(fx.asks) > 0 {
		s.rounds++
	}
	return fx
}

// maxAsks bounds the asks of one round trip to a store.
const maxAsks = 64

// advance moves one line as far as it goes at now and sets its timer.
func (s *schedule) advance(l *line, now bucket.Micros, fx *effects) {
	if l.held != 0 && l.held <= now {
		l.held = 0
		delete(s.heldKeys, l)
		l.restart(now)
		fx.resumed = append(fx.resumed, l)
	}
	s.startDue(l, now, fx)
	s.cancelDue(l, fx)
	due := never
	if len(l.tasks) > 0 {
		due = s.nextStart(l)
	}
	if !s.drain && !s.barred && l.part.open && !l.unread {
		s.lapse(l, now, fx)
		hold := s.heldUntil(l)
		switch {
		case hold > now.Add(s.pace.lead):
			s.withdrawReady(l, hold, now, fx)
			if hold != never {
				due = min(due, hold.Add(-s.pace.lead))
			}
		case l.blocked:
		case s.until > now.Add(longWait) && !l.costly, s.failures > 0 && s.until > now:
			s.withdrawReady(l, s.until, now, fx)
			s.block(l) // nothing is made ready for a slot that is far
		default:
			due = min(due, s.stage(l, now, fx), s.ask(l, now, fx))
		}
		due = min(due, s.lapse(l, now, fx)) // another job may be the first now
	}
	if l.called {
		l.called = false
		s.blocked.lend(l, 0) // it had nothing to ask for
	}
	if l.empty() {
		due = min(due, s.memory(l, now))
	}
	s.timers.set(l, due)
	if due == never && l.empty() && !l.inTurn && !l.queued && !l.lapses && !l.blocked && s.lines[l.key] == l {
		s.leave(l)
		delete(s.lines, l.key) // a line that is still listed somewhere must stay the key's only one
	}
	s.countKept(l)
}

// countKept counts the lines that are kept without jobs, for what they remember of their key.
func (s *schedule) countKept(l *line) {
	kept := l.empty() && s.lines[l.key] == l
	switch {
	case kept && !l.kept:
		s.kept++
	case !kept && l.kept:
		s.kept--
	}
	l.kept = kept
}

// withdrawReady lets go of what a line has made ready for a time that turned out to be far: it would keep other keys'
// jobs from being made ready, and its intents would make it unknown if the process died meanwhile.
func (s *schedule) withdrawReady(l *line, until, now bucket.Micros, fx *effects) {
	if until <= now.Add(longWait) && s.breaker.closed() {
		return
	}
	for _, t := range l.tasks {
		if t.phase == ready && (t != s.probe || until > now.Add(longWait)) {
			s.withdraw(t, until)
			fx.stale = append(fx.stale, t)
		}
	}
}

// stage makes jobs ready whose slots are near, and returns when to look again.
func (s *schedule) stage(l *line, now bucket.Micros, fx *effects) (again bucket.Micros) {
	interval := s.rules.Interval(l.limits.Rate)
	ungranted := int64(l.count(staging, ready, asking))
	for {
		t, at := s.candidate(l, now.Add(s.pace.lead))
		if t == nil && at == never {
			return never
		}
		at = max(at, l.earliest(), bucket.Forecast(*l.limits, interval, l.tat, now, int(ungranted)+1))
		if at > now.Add(s.pace.lead) {
			return at.Add(-s.pace.lead)
		}
		if ungranted+s.ahead(l) >= l.atOnce() {
			return never // a call of this line that ends will touch it
		}
		if !s.room() {
			s.awaitRoom(l)
			return never
		}
		if t == nil {
			t = l.begin(l.dequeue())
		}
		t.phase, t.limited = staging, false
		if !s.breaker.closed() {
			s.probe = t
		}
		s.suspects.call(t)
		s.staged++
		ungranted++
		fx.load = append(fx.load, t)
		if s.queue.size > 0 {
			s.awaitRoom(l) // a job a turn
			return never
		}
	}
}

// candidate is the next job to make ready: a resting task, or, where t is nil, the oldest waiting job. at is when it
// may be called at the earliest, as far as the job itself goes; never when there is none. Retries may be overtaken; a
// job that the api may not have seen yet may not.
func (s *schedule) candidate(l *line, by bucket.Micros) (t *task, at bucket.Micros) {
	at = never
	passable := true
	for _, rest := range l.tasks {
		if rest.phase == settling && rest.unseen {
			passable = false // what became of its call is being found out
			break
		}
		if rest.phase != resting {
			continue
		}
		if may := s.suspects.mayCall(rest); may && rest.notBefore < at {
			t, at = rest, rest.notBefore
		}
		if rest.first() {
			passable = false
			break
		}
	}
	if passable && l.first != 0 && at > by {
		return nil, 0
	}
	return t, at
}

// ask asks for slots for the line's ready tasks and returns when to look again.
func (s *schedule) ask(l *line, now bucket.Micros, fx *effects) bucket.Micros {
	s.unready(l, now, fx)
	free, again := l.free(now)
	var tasks []*task
	for _, t := range l.tasks {
		if t.phase == staging && !t.first() {
			continue // a retry may be overtaken; it may wait for room in memory that those behind it have
		}
		if t.phase == staging || t.phase == asking || t.first() && (t.phase == resting || t.phase == settling || t.notBefore > now) {
			if t.phase == ready {
				again = min(again, t.notBefore)
			}
			break // order: nobody overtakes
		}
		if t.phase != ready {
			continue
		}
		if t.notBefore > now {
			again = min(again, t.notBefore) // a retry that was made ready before its time
			continue
		}
		if t.past(now) {
			s.expire(t, fx)
			continue
		}
		if int64(len(tasks)) >= min(free, maxAsks) {
			break
		}
		tasks = append(tasks, t)
	}
	if len(tasks) == 0 {
		return again
	}
	if hold := s.heldUntil(l); hold > now {
		return hold // a slot before it could not be used
	}
	if again, may := s.mayAsk(l, now, fx); !may {
		return again
	}
	if s.full() || s.until > now || s.rounds > 0 || s.blocked.size > 0 && !l.called {
		s.block(l)
		return never
	}
	if l.askAt > now {
		return l.askAt
	}
	if slot := bucket.Forecast(*l.limits, s.rules.Interval(l.limits.Rate), l.tat, now, 1); slot > now.Add(s.pace.ahead) {
		return slot.Add(-s.pace.ahead)
	}
	if len(s.rules.Shared) > 0 || s.slows(l) {
		tasks = tasks[:1] // keys take turns under a shared limit, a call a turn
	}
	for _, t := range tasks {
		t.phase = asking
	}
	s.takeTurn(l, tasks)
	ask := bucket.Ask{Key: l.key, Limits: *l.limits, Costs: tasks[0].costs, Want: len(tasks), Horizon: s.pace.ahead}
	if l.cold {
		ask.Floor = s.floor(l)
	}
	fx.asks = append(fx.asks, ask)
	fx.asked = append(fx.asked, tasks)
	return never // the answer touches the line
}

// next is when step has something to do again, as far as time goes.
func (s *schedule) next(now bucket.Micros) bucket.Micros {
	if len(s.turns) > 0 || s.queue.size > 0 && s.room() || s.mayLapseMore() {
		return now
	}
	next := s.timers.next()
	if s.held != 0 {
		next = min(next, s.held)
	}
	if s.spent != 0 {
		next = min(next, s.spent)
	}
	if s.blocked.size > 0 && !s.full() && s.rounds == 0 {
		next = min(next, s.until)
	}
	return next
}

// asking reports whether a round of asks is under way.
func (s *schedule) asking() bool { return s.rounds > 0 }

// queues are the queues of all keys that have jobs, or of which something is to be remembered. Where the lock is let go of between two of
// them, a queue that came or went meanwhile may be among them or not.
func (s *schedule) queues() iter.Seq[*line] { return maps.Values(s.lines) }

// find is the queue of a key, nil where there is none.
func (s *schedule) find(key string) *line { return s.lines[key] }

// has reports whether a queue is its key's still: one that came to its end is not.
func (s *schedule) has(l *line) bool { return s.lines[l.key] == l }

// stop lets nothing new start, and returns the slots that were not used.
func (s *schedule) stop() []bucket.Use {
	s.drain = true
	var fx effects
	for _, l := range s.lines {
		if first := firstGranted(l); first != nil {
			s.giveBack(l, first, &fx)
		}
	}
	return fx.unused
}

// openPartition lets the jobs of a partition be called.
func (s *schedule) openPartition(p *Partition) {
	p.open = true
	for _, l := range s.lines {
		if l.part == p {
			s.touch(l)
		}
	}
}

// intervalOf is the time between two calls of a key in the long run.
func (s *schedule) intervalOf(l *line) time.Duration {
	return s.rules.Interval(l.limits.Rate).Duration()
}

// learnLevels takes in how much of the shared limits is used. levels is not changed afterwards.
func (s *schedule) learnLevels(levels []bucket.Level) { s.levels = levels }
