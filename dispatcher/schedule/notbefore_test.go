package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// appointments draws the times before which a simulation's jobs must not be called, independently of the simulation's
// other draws.
type appointments struct {
	rnd  *rand.Rand // nil: no job has one
	came map[uint64]bucket.Micros
	of   map[uint64]bucket.Micros
}

func newAppointments(seed uint64) appointments {
	a := appointments{came: map[uint64]bucket.Micros{}, of: map[uint64]bucket.Micros{}}
	if seed%4 >= 2 {
		a.rnd = rand.New(rand.NewPCG(seed, 3))
	}
	return a
}

// cameAt returns when a job came, now or before a crash.
func (a *appointments) cameAt(seq uint64, now bucket.Micros) bucket.Micros {
	if _, known := a.came[seq]; !known {
		a.came[seq] = now
	}
	return a.came[seq]
}

// notBefore draws the time of a job that comes now, in steps so large that some are equal. Some are past when
// the job comes.
func (a *appointments) notBefore(seq uint64, now bucket.Micros) bucket.Micros {
	if _, known := a.of[seq]; known || a.rnd == nil {
		return a.of[seq]
	}
	const step = 20 * time.Millisecond
	if a.of[seq] = 0; a.rnd.IntN(3) == 0 {
		a.of[seq] = now.Add(step*time.Duration(a.rnd.IntN(30))-step) / 1000 * 1000
	}
	return a.of[seq]
}

// compare is the order in which two jobs of a key must first be called: by when they came or were due. If those
// are equal, jobs that were due come before jobs that came.
func (a *appointments) compare(x, y uint64) int {
	from := func(seq uint64) (at bucket.Micros, late int) {
		if due := a.of[seq]; due > a.came[seq] {
			return due, 0
		}
		return a.came[seq], 1
	}
	xAt, xLate := from(x)
	yAt, yLate := from(y)
	return cmp.Or(cmp.Compare(xAt, yAt), cmp.Compare(xLate, yLate), cmp.Compare(x, y))
}

// checkAppointment checks that the schedule calls no job before its time, and that no job waits behind one that
// must not be called yet.
func (m *simulation) checkAppointment(j *Job) {
	if at := m.appointments.of[j.Seq]; m.now < at {
		m.t.Fatalf("job %d was called %s before its time", j.Seq, m.now.Until(at))
	}
}

// waitingSeqs returns the sequences of a queue that have no Job, rising.
func (q *KeyQueue) waitingSeqs() []uint64 {
	var seqs []uint64
	for _, p := range q.waits.Priorities() {
		seqs = slices.AppendSeq(seqs, q.waits.Of(p).Seqs)
	}
	slices.Sort(seqs)
	return seqs
}

// booking is one job of a key: when it comes and, if not 0, the time before which it must not be called, in
// milliseconds.
type booking struct{ came, notBefore int64 }

// callsOf adds jobs, the n-th with sequence n. It returns the sequences in the order of the calls, and the millisecond
// in which each call started.
func callsOf(t *testing.T, limits bucket.KeyLimits, jobs ...booking) (order []uint64, at map[uint64]int64) {
	d := newDesk(limits)
	d.spacing = limits.Rate.Per / time.Duration(limits.Rate.Count)
	began := d.now
	at = map[uint64]int64{}
	for ms, next := int64(0), 0; len(order) < len(jobs); ms++ {
		d.now = began.Add(time.Duration(ms) * time.Millisecond)
		for ; next < len(jobs) && jobs[next].came <= ms; next++ {
			due := bucket.Micros(0)
			if n := jobs[next].notBefore; n > 0 {
				due = began.Add(time.Duration(n) * time.Millisecond)
			}
			d.PushEarly("k", uint64(next+1), d.part, bucket.Normal, d.now, due)
		}
		d.grant()
		for _, q := range []*KeyQueue{d.Queues.byKey["k"]} {
			if q == nil {
				continue
			}
			for _, j := range slices.Clone(q.Jobs) {
				if j.Phase == calling {
					order, at[j.Seq] = append(order, j.Seq), ms
					j.Calls++
					d.Ended(j, nil, d.now)
					d.Finished(j)
				}
			}
		}
		if ms > 1_000_000 {
			t.Fatalf("%d of %d jobs were called", len(order), len(jobs))
		}
	}
	return order, at
}

// TestJobThatIsEarlyHoldsNobodyBack checks that jobs behind an early job go at once, one after the other too,
// and that the early job goes when its time has come, and no sooner.
func TestJobThatIsEarlyHoldsNobodyBack(t *testing.T) {
	for _, inFlight := range []int64{1, 4} {
		order, at := callsOf(t, fast(inFlight), booking{0, 60_000}, booking{0, 0}, booking{0, 0}, booking{5, 0})
		if fmt.Sprint(order) != "[2 3 4 1]" {
			t.Errorf("in_flight %d: called in the order %v", inFlight, order)
		}
		if at[2] > 20 || at[4] > 60 || at[1] < 60_000 || at[1] > 60_020 {
			t.Errorf("in_flight %d: called at %v ms", inFlight, at)
		}
	}
}

// TestOrderOfJobsThatAreDue checks that a due job has the place of a job that came at that time: when the due job
// itself came does not matter.
func TestOrderOfJobsThatAreDue(t *testing.T) {
	slow := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 1}
	for name, c := range map[string]struct {
		jobs []booking
		want string
	}{
		"between those that came before and after": {[]booking{{0, 0}, {0, 2500}, {1, 0}, {2000, 0}, {2600, 0}, {2700, 0}}, "[1 3 4 2 5 6]"},
		"by their times, not by their coming":      {[]booking{{0, 900}, {0, 300}, {0, 600}, {0, 0}}, "[4 2 3 1]"},
		"of one time, by their coming":             {[]booking{{0, 500}, {1, 500}, {2, 500}, {3, 0}}, "[4 1 2 3]"},
		"due when another comes: before it":        {[]booking{{0, 0}, {0, 700}, {700, 0}}, "[1 2 3]"},
		"a time that is over":                      {[]booking{{5, 0}, {5, 3}, {5, 0}}, "[1 2 3]"},
	} {
		if order, _ := callsOf(t, slow, c.jobs...); fmt.Sprint(order) != c.want {
			t.Errorf("%s: called in the order %v, want %s", name, order, c.want)
		}
	}
}

// TestEarlyJobsAreRead checks that while a partition is read, only the jobs that were read decide which early jobs are
// due, and that the other due jobs go once all is read.
func TestEarlyJobsAreRead(t *testing.T) {
	d := newDesk(fast(1))
	d.part.Reading = true
	ms := func(n int) bucket.Micros { return d.now.Add(time.Duration(n-1000) * time.Millisecond) }
	d.PushEarly("k", 1, d.part, bucket.Normal, ms(0), ms(500))
	d.PushEarly("k", 2, d.part, bucket.Normal, ms(100), 0)
	d.PushEarly("k", 3, d.part, bucket.Normal, ms(200), ms(400))
	d.turn()
	q := d.Queues.byKey["k"]
	if p, _ := q.waits.Of(bucket.Normal).Next(); p.Seq != 2 && q.Job(2) == nil || q.waits.NotDue() != 2 {
		t.Fatalf("job %d is next, %d are early", p.Seq, q.waits.NotDue())
	}
	d.PushEarly("k", 4, d.part, bucket.Normal, ms(450), 0)
	d.PushEarly("k", 5, d.part, bucket.Normal, ms(600), ms(601))
	d.PushEarly("k", 6, d.part, bucket.Normal, ms(700), 0)
	var order []uint64
	for p, j := range q.inOrder {
		if j != nil {
			p.Seq = j.Seq
		}
		order = append(order, p.Seq)
	}
	if fmt.Sprint(order) != "[2 3 4 1 5 6]" {
		t.Errorf("after the reading they stand as %v", order)
	}
	e := newDesk(fast(1))
	e.part.Reading = true
	e.PushEarly("k", 1, e.part, bucket.Normal, e.now.Add(-2*time.Second), e.now.Add(-time.Second))
	if fx := e.turn(); len(fx.Load) != 0 || e.Next(e.now) <= e.now {
		t.Error("a job was made ready before it is known what came before it, or its queue is looked at for ever")
	}
	e.part.Reading = false
	if q := e.Queues.byKey["k"]; !q.Delays() {
		t.Error("the queue delays no job")
	} else {
		e.Queues.Touch(q)
	}
	if fx := e.turn(); len(fx.Load) != 1 {
		t.Error("nothing was made ready when all was read")
	}
}

// TestEarlyJobIsCancelledAndForgotten checks that an early job can be cancelled, counts as unfinished, and goes
// with its partition.
func TestEarlyJobIsCancelledAndForgotten(t *testing.T) {
	d := newDesk(fast(1))
	for seq := uint64(1); seq <= 3; seq++ {
		d.PushEarly("k", seq, d.part, bucket.Normal, d.now, d.now.Add(time.Hour))
	}
	d.turn()
	if j, c := d.Cancel("k", 2); c != CancelTaken || j.Seq != 2 {
		t.Fatalf("cancelled: %v", c)
	}
	fx := d.turn()
	if len(fx.Cancel) != 1 || d.census.early != 2 || d.census.unfinished != 3 {
		t.Fatalf("%d jobs are to become letters, %d are early, %d unfinished", len(fx.Cancel), d.census.early, d.census.unfinished)
	}
	d.Finished(fx.Cancel[0])
	if _, c := d.Cancel("k", 2); c != CancelGone {
		t.Errorf("cancelled again: %v", c)
	}
	d.turn()
	q := d.Queues.byKey["k"]
	if got := d.Next(d.now); got != q.waits.FirstDue() {
		t.Errorf("looked at in %s, though nothing is due for an hour", d.now.Until(got))
	}
	d.Forget(q)
	if d.census.early+d.census.unfinished != 0 {
		t.Errorf("%d early and %d unfinished jobs are left of a partition that is another's", d.census.early, d.census.unfinished)
	}
}

// TestQueuedJobsAreDue checks that a job counts as queued from its due time on, also while its api is paused and while
// it waits for its retry, until it is called. Queued jobs make an alert page if no call is made.
func TestQueuedJobsAreDue(t *testing.T) {
	d := newDesk(fast(1))
	want := func(when string, queued, early, calling, polled int) {
		t.Helper()
		d.turn()
		got := d.At(d.now).Count(func(string) bool { return true })
		if got.Queued != queued || got.Early != early || got.Calling != calling || got.Polled != polled {
			t.Errorf("%s: %+v", when, got)
		}
		if sum := got.Queued + got.Early + got.Calling + got.Polled; got.Unfinished() != sum || sum != d.census.unfinished {
			t.Errorf("%s: %d unfinished jobs of %d", when, got.Unfinished(), d.census.unfinished)
		}
	}
	d.PushEarly("k", 1, d.part, bucket.Normal, d.now, d.now.Add(24*time.Hour))
	want("a day before", 0, 1, 0, 0)
	d.Holds.Pause("", Pause{})
	d.now = d.now.Add(24 * time.Hour)
	want("due in a paused api", 1, 0, 0, 0)
	j := d.Extract(d.Queues.byKey["k"], 1)
	d.Rest(j, d.now.Add(time.Hour))
	want("before its retry", 1, 0, 0, 0)
	j.Phase = calling
	d.Pipe.calls++
	want("called", 0, 0, 1, 0)
	d.Ended(j, nil, d.now)
	d.Submit(j, false)
	want("polled", 0, 0, 0, 1)
	d.EndPolled(j)
	d.Finished(j)
	want("done", 0, 0, 0, 0)
}

// TestEarlyJobIsShown checks the report on early jobs: a job's place, what its key waits for, and when each is called.
func TestEarlyJobIsShown(t *testing.T) {
	d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4})
	hour := d.now.Add(time.Hour)
	d.PushEarly("k", 1, d.part, bucket.Normal, d.now, hour)
	d.PushEarly("k", 2, d.part, bucket.Normal, d.now, hour.Add(-time.Minute))
	d.PushEarly("k", 3, d.part, bucket.Normal, d.now, hour)
	d.turn()
	q := d.Queues.byKey["k"]
	if s := d.At(d.now).Inspect(q); s.Waits.For != WaitNotBefore || !s.Waits.Until.Equal(hour.Add(-time.Minute).Time()) || s.WaitMS != 0 || s.Depth != 3 {
		t.Errorf("%+v", s)
	}
	d.PushEarly("k", 4, d.part, bucket.Normal, d.now, 0)
	if s := d.At(d.now).Inspect(q); s.Waits.For == WaitNotBefore || s.WaitMS != 1000 {
		t.Errorf("with a job that may be called: %+v", s)
	}
	want := []struct {
		seq   uint64
		phase JobPhase
		at    bucket.Micros
	}{{4, JobWaits, d.now}, {2, JobNotBefore, hour.Add(-time.Minute)}, {1, JobNotBefore, hour}, {3, JobNotBefore, hour.Add(time.Second)}}
	for i, s := range d.At(d.now).FirstJobs(q, 10) {
		if w := want[i]; s.Seq != w.seq || s.Phase != w.phase || !s.ETA.Equal(w.at.Time()) || s.Position != i+1 {
			t.Errorf("%d: %+v at %s, want %v", i, s, s.ETA, w)
		}
		rank, notBefore := q.Rank(want[i].seq)
		if rank != i+1 || (notBefore != 0) != (want[i].phase == JobNotBefore) {
			t.Errorf("job %d has rank %d and is due at %d", want[i].seq, rank, notBefore)
		}
	}
	if n := len(d.At(d.now).FirstJobs(q, 2)); n != 2 {
		t.Errorf("%d jobs were told of 2", n)
	}
}

// TestForecastOfEarlyJobs checks that a receipt says when the call starts: not before its time, behind jobs that
// are due by then, and not before jobs that came sooner. A job that may be called at once does not wait for
// early ones.
func TestForecastOfEarlyJobs(t *testing.T) {
	d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 10_000, InFlight: 4})
	hour := d.now.Add(time.Hour)
	eta := func(position int, notBefore bucket.Micros) time.Duration {
		return d.now.Until(d.At(d.now).ETA(Place{Key: "k", Position: position, NotBefore: notBefore}))
	}
	if got := eta(1, hour); got != time.Hour {
		t.Errorf("the first: in %s", got)
	}
	for seq := range uint64(1000) {
		d.PushEarly("k", seq+1, d.part, bucket.Normal, d.now, hour)
	}
	d.turn()
	if got := eta(1001, hour); got != time.Hour+1000*time.Second {
		t.Errorf("behind 1000 of the same time: in %s", got)
	}
	if got := eta(1001, hour.Add(2*time.Hour)); got != 3*time.Hour {
		t.Errorf("long after them: in %s", got)
	}
	if n := d.Queues.byKey["k"].Early(d.now); n != 1000 {
		t.Errorf("%d jobs are early", n)
	}
	if got := eta(1, 0); got != 0 {
		t.Errorf("a job that may be called at once: in %s", got)
	}
	other := d.At(d.now).ETA(Place{Key: "other", Position: 1, Others: 1000, Keys: 1})
	if d.now.Until(other) != 0 {
		t.Errorf("another key's job: in %s", d.now.Until(other))
	}
}

// TestPlaceOfEarlyJobs checks when a place in a full bucket should come free: when the first of its jobs may be
// called if all are early, also if the schedule has not got some of them yet, and otherwise at once.
func TestPlaceOfEarlyJobs(t *testing.T) {
	const capacity = 6
	hour := func(d *desk) bucket.Micros { return d.now.Add(time.Hour) }
	for _, c := range []struct {
		what          string
		early, others int // that the schedule has got
		unread        int // of the intake
		sooner        bool
	}{
		{what: "all are read", early: capacity},
		{what: "none is read", unread: capacity},
		{what: "some are read", early: 2, unread: capacity - 2},
		{what: "one that came later may be called at once", early: capacity - 1, others: 1, sooner: true},
		{what: "one that is not read may be called at once", early: 2, unread: capacity - 3, sooner: true},
		{what: "nothing is known of the others", unread: 1, sooner: true},
		{what: "nothing is known", sooner: true},
		{what: "a bucket that was larger holds one more", early: 2, unread: capacity - 2, others: 1},
	} {
		d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: capacity, InFlight: 4})
		for i := range c.early {
			d.PushEarly("k", uint64(i+1), d.part, bucket.Normal, d.now, hour(d).Add(time.Duration(i)*time.Minute))
		}
		for i := range c.others {
			d.PushEarly("k", uint64(c.early+i+1), d.part, bucket.Normal, d.now, 0)
		}
		d.turn()
		want, free := time.Hour, d.now.Until(d.At(d.now).PlaceFree("k", Unread{c.unread, hour(d)}))
		if c.sooner {
			want = 0
		}
		if free < want || free > want+time.Minute {
			t.Errorf("%s: a place should come free in %s", c.what, free)
		}
	}
}

// TestForecastBesideEarlyJobs checks that under a shared limit early jobs delay no other job.
func TestForecastBesideEarlyJobs(t *testing.T) {
	account := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}}
	d := newDesk(fast(4), account)
	for i := range 500 {
		d.PushEarly(fmt.Sprint("k", i%50), uint64(i+1), d.part, bucket.Normal, d.now, d.now.Add(time.Hour))
	}
	d.turn()
	d.gate.shut("account", d.now.Add(time.Second))
	d.Shared.Granted(&limits.Call{Costs: []int64{1}}, d.now)
	d.add("busy", "busy")
	d.turn()
	at := d.At(d.now).ETA(Place{Key: "other", Position: 1, Others: 502, Keys: 51})
	if wait := d.now.Until(at); wait > 5*time.Second {
		t.Errorf("a job is told to wait %s behind two calls", wait)
	}
}

// TestDeadlinesFollowTheWallClock checks that a deadline passes, and a due time comes, when the wall clock says so: if
// it was set before the job came, and if it is set while the job waits.
func TestDeadlinesFollowTheWallClock(t *testing.T) {
	const hour, due = bucket.Micros(3600e6), 30 * time.Second
	for _, c := range []struct {
		what          string
		before, after bucket.Micros // how far the wall clock is ahead before the job comes, and afterwards
		passes        time.Duration // from when the job came until its time by the wall clock
	}{
		{"never set", 0, 0, due},
		{"set back before", -hour, -hour, due},
		{"set forward before", hour, hour, due},
		{"set forward since", 0, hour, 0},
		{"set back since", 0, -hour, due + time.Hour},
		{"set right since", hour, 0, due + time.Hour},
	} {
		for _, early := range []bool{true, false} {
			d := newDesk(fast(4))
			s, part := d.Schedule, d.part
			s.Queues.FollowWall(c.before)
			wall := someTime + c.before
			if at := s.Queues.Own(wall.Add(due)); early {
				s.PushEarly("k", 1, part, bucket.Normal, s.Queues.Own(wall), at)
			} else {
				part.Expect(1, at)
				s.Push("k", 1, part)
				s.Holds.Pause("k", Pause{})
			}
			s.Queues.FollowWall(c.after)
			done := func(now bucket.Micros) bool { fx := s.Step(now); return len(fx.Expire)+len(fx.Load) > 0 }
			if c.passes > 0 && done(someTime.Add(c.passes-5*time.Second)) {
				t.Errorf("%s, early %v: too soon", c.what, early)
			}
			if next := s.Next(someTime); c.passes > 0 && next > someTime.Add(c.passes) {
				t.Errorf("%s, early %v: the schedule looks again after %v", c.what, early, someTime.Until(next))
			}
			if !done(someTime.Add(c.passes)) {
				t.Errorf("%s, early %v: too late", c.what, early)
			}
		}
	}
}

// TestDeadlineOfAPolledJobFollowsTheWallClock checks that the deadline of a job that was polled while the wall clock
// was set passes when the wall clock says so.
func TestDeadlineOfAPolledJobFollowsTheWallClock(t *testing.T) {
	const hour = bucket.Micros(3600e6)
	s, part, run := polledSchedule(t)
	part.Expect(1, someTime.Add(time.Minute))
	s.Push("k", 1, part)
	j := run()[0]
	accept(s, j, false)
	s.Queues.FollowWall(-hour)
	s.EndPolled(j)
	if left := someTime.Until(j.Deadline); left != time.Minute+time.Hour {
		t.Errorf("its deadline passes after %v", left)
	}
}
