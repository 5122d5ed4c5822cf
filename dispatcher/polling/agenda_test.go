package polling

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

const start = bucket.Micros(1_800_000_000_000_000)

// polledJobs returns n jobs that are polled, and their schedule.
func polledJobs(n int) (*schedule.Schedule, []*lane.Job) {
	s := schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := &schedule.Partition{}
	var jobs []*lane.Job
	for i := range uint64(n) {
		j := s.Extract(s.Push("k", i+1, p), i+1)
		j.Settle()
		s.Submit(j, false)
		jobs = append(jobs, &lane.Job{Job: j})
	}
	return s, jobs
}

// TestAgenda checks that the operation that has been due longest is polled first, and that the rate is over all
// operations.
func TestAgenda(t *testing.T) {
	_, jobs := polledJobs(3)
	var a agenda
	for i, j := range jobs {
		a.add(&poll{job: j}, start.Add(-time.Duration(i)*time.Second))
	}
	now := start
	for i := range 3 {
		p, _ := a.take(now, 100*time.Millisecond)
		if p == nil || p.job != jobs[2-i] {
			t.Fatalf("poll %d is %+v", i, p)
		}
		if p, again := a.take(now, 100*time.Millisecond); p != nil || i < 2 && again != now.Add(100*time.Millisecond) {
			t.Errorf("another poll at once: %+v, again at %d", p, again-now)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if _, again := a.take(now, time.Second); again != schedule.Never {
		t.Errorf("nothing is left, and %d", again)
	}
}

// TestAgendaSavesNothing checks that polls that were not made do not let later ones come faster.
func TestAgendaSavesNothing(t *testing.T) {
	_, jobs := polledJobs(4)
	var a agenda
	for _, j := range jobs {
		a.add(&poll{job: j}, start)
	}
	polls := 0
	for now := start.Add(time.Hour); now < start.Add(time.Hour+time.Second); now = now.Add(time.Millisecond) {
		if p, _ := a.take(now, 250*time.Millisecond); p != nil {
			polls++
		}
	}
	if polls != 4 {
		t.Errorf("%d polls in a second, want 4", polls)
	}
}

// TestAgendaBounds checks that only so many polls are under way, and that the end of one lets the next begin.
func TestAgendaBounds(t *testing.T) {
	_, jobs := polledJobs(mostUnderWay + 2)
	var a agenda
	for _, j := range jobs {
		a.add(&poll{job: j}, start)
	}
	taken := 0
	for p, _ := a.take(start, 0); p != nil; p, _ = a.take(start, 0) {
		taken++
	}
	if taken != mostUnderWay {
		t.Errorf("%d polls are under way", taken)
	}
	a.ended()
	if p, _ := a.take(start, 0); p == nil {
		t.Error("no poll after one has ended")
	}
}

// TestAgendaForgets checks that an operation that has ended, or whose partition was lost, takes no poll.
func TestAgendaForgets(t *testing.T) {
	s, jobs := polledJobs(3)
	var a agenda
	a.failed(&poll{job: jobs[0]}, time.Second, start)
	for _, j := range jobs {
		a.add(&poll{job: j}, start)
	}
	s.EndPolled(jobs[0].Job)
	if p, _ := a.take(start, time.Second); p == nil || p.job == jobs[0] {
		t.Errorf("polled %+v", p)
	}
	a.ended()
	s.Forget(jobs[1].Queue)
	if p, again := a.take(start.Add(time.Minute), time.Second); p != nil || again != schedule.Never || len(a.waiting) != 0 {
		t.Errorf("polled %+v of another replica", p)
	}
	if a.silence(start.Add(time.Hour)) != 0 {
		t.Error("it is silent, and nothing is polled")
	}
}

// TestAgendaHurries checks that a cancelled job is next, and still keeps the rate.
func TestAgendaHurries(t *testing.T) {
	_, jobs := polledJobs(2)
	var a agenda
	a.add(&poll{job: jobs[0]}, start)
	a.add(&poll{job: jobs[1]}, start.Add(time.Hour))
	a.hurry(jobs[1], start)
	if p, _ := a.take(start, time.Second); p == nil || p.job != jobs[1] || !p.recalled {
		t.Errorf("%+v is polled", p)
	}
	if p, again := a.take(start, time.Second); p != nil || again != start.Add(time.Second) {
		t.Errorf("%+v is polled, again at %d", p, again)
	}
}

// TestAgendaHolds checks what the api's answers say about all polls, and for how long nothing was understood.
func TestAgendaHolds(t *testing.T) {
	_, jobs := polledJobs(1)
	var a agenda
	p := &poll{job: jobs[0]}
	a.add(p, start)
	a.hold(start.Add(time.Minute))
	a.hold(start.Add(time.Second)) // it shortens nothing
	if _, again := a.take(start, 0); again != start.Add(time.Minute) {
		t.Errorf("held until %d", again-start)
	}
	now, rests := start.Add(time.Minute), []time.Duration{}
	for i := range 8 {
		until, first := a.denied(now)
		rests = append(rests, now.Until(until))
		if first != (i == 0) {
			t.Errorf("denial %d is the first: %v", i, first)
		}
		now = until
	}
	if rests[0] != 10*time.Second || rests[1] != 20*time.Second || rests[7] != longestRest {
		t.Errorf("the api denied access, and polls wait %v", rests)
	}
	if a.silence(now) != 0 {
		t.Errorf("silent for %v before a poll has failed", a.silence(now))
	}
	a.failed(p, time.Second, now)
	a.failed(p, time.Second, now.Add(time.Minute))
	if d := a.silence(now.Add(time.Hour)); d != time.Hour {
		t.Errorf("silent for %v", d)
	}
	a.understood(p)
	if a.silence(now) != 0 || a.denials != 0 {
		t.Errorf("silent for %v, %d denials", a.silence(now), a.denials)
	}
}

// TestFailedPolls checks that an operation whose polls say nothing is polled ever more rarely, until one says
// something.
func TestFailedPolls(t *testing.T) {
	var a agenda
	var p poll
	var rests []time.Duration
	for range 9 {
		rests = append(rests, a.failed(&p, 5*time.Second, start))
	}
	if rests[0] != 5*time.Second || rests[1] != 10*time.Second || rests[8] != longestRest || p.failures != 9 {
		t.Errorf("%v", rests)
	}
	a.understood(&p)
	if rest := a.failed(&p, time.Hour, start); rest != time.Hour || a.failed(&p, time.Hour, start) != time.Hour {
		t.Errorf("an operation that is polled every hour rests %v", rest)
	}
}
