package dispatcher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest/await"
)

// inspected is a schedule with one open part and a clock that stands.
func inspected(rules bucket.Rules) (*schedule, *Partition, bucket.Micros) {
	s := newSchedule(&Policy{Rules: rules}, pace{lead: 30 * time.Millisecond, ahead: 4 * time.Millisecond, late: 4 * time.Millisecond, maxStaged: 8, maxCalls: 8},
		func(string) bucket.Micros { return 0 })
	return s, &Partition{open: true}, bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
}

func hourly() bucket.Rules {
	return bucket.Rules{Key: bucket.KeyLimits{
		Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: 9, InFlight: 2,
	}}
}

// TestWaits puts a line into every state there is and looks at why it waits.
func TestWaits(t *testing.T) {
	task := func(l *line, p phase) *task {
		t := &task{line: l, seq: uint64(100 + len(l.tasks)), phase: p}
		l.insert(t)
		return t
	}
	second := bucket.Micros(time.Second / time.Microsecond)
	for _, c := range []struct {
		want  WaitFor
		until bucket.Micros // after now; 0 for none
		make  func(s *schedule, l *line, now bucket.Micros)
	}{
		{WaitRate, 5 * second, func(_ *schedule, l *line, now bucket.Micros) { l.tat = now + 5*second }},
		{WaitRate, 2 * second, func(_ *schedule, l *line, now bucket.Micros) { task(l, granted).at = now + 2*second }},
		{WaitInFlight, 0, func(_ *schedule, l *line, _ bucket.Micros) { task(l, calling); task(l, calling) }},
		{WaitNothing, 0, func(_ *schedule, l *line, _ bucket.Micros) { l.first = 0; task(l, calling); task(l, settling) }},
		{WaitHeld, 7 * second, func(s *schedule, l *line, now bucket.Micros) { s.hold(l, now+7*second, "x") }},
		{WaitAPIHeld, 8 * second, func(s *schedule, l *line, now bucket.Micros) {
			s.hold(l, now+7*second, "x")
			s.hold(nil, now+8*second, "x")
		}},
		{WaitHeld, 9 * second, func(s *schedule, l *line, now bucket.Micros) {
			s.hold(l, now+9*second, "x")
			s.hold(nil, now+8*second, "x")
		}},
		{WaitRetry, 6 * second, func(_ *schedule, l *line, now bucket.Micros) {
			l.first = 0
			r := task(l, resting)
			r.calls, r.notBefore, r.failed = 1, now+6*second, "x"
		}},
		{WaitLimit, 60 * second, func(s *schedule, l *line, now bucket.Micros) {
			l.blocked, s.by, s.until = true, "account", now+60*second
		}},
		{WaitLimit, 0, func(s *schedule, l *line, now bucket.Micros) {
			l.blocked, s.by, s.until = true, "concurrent", now+60*second
		}},
		{WaitLimiter, 0, func(s *schedule, l *line, now bucket.Micros) { l.blocked, s.by, s.until = true, storeDown, now+second }},
		{WaitRoom, 0, func(s *schedule, l *line, _ bucket.Micros) { l.blocked, s.calls = true, s.pace.maxCalls }},
		{WaitRoom, 0, func(_ *schedule, l *line, _ bucket.Micros) { l.queued = true }},
		{WaitReading, 0, func(_ *schedule, l *line, _ bucket.Micros) { l.part.open = false }},
		{WaitClearing, 0, func(_ *schedule, l *line, _ bucket.Micros) { l.part.open, l.part.stalled = false, true }},
		{WaitStop, 0, func(s *schedule, _ *line, _ bucket.Micros) { s.drain = true }},
	} {
		rules := hourly()
		rules.Shared = []bucket.Limit{{Name: "account", Rate: &rules.Key.Rate}, {Name: "concurrent", InFlight: 1}}
		s, p, now := inspected(rules)
		l := s.push("k", 500, p)
		c.make(s, l, now)
		w := s.waits(l, now)
		if w.For != c.want || (w.Until == nil) != (c.until == 0) || w.Until != nil && !w.Until.Equal((now+c.until).Time()) {
			t.Errorf("waits for %s until %v, want %s until %v", w.For, w.Until, c.want, (now + c.until).Time())
		}
		if (w.For == WaitHeld || w.For == WaitAPIHeld || w.For == WaitRetry) != (w.Why == "x") || (w.For == WaitLimit) != (w.Limit != "") {
			t.Errorf("%s tells limit %q and why %q", w.For, w.Limit, w.Why)
		}
	}
}

// TestFirstJobs lists tasks and waiting jobs in one order, with the times the rate gives them.
func TestFirstJobs(t *testing.T) {
	s, p, now := inspected(hourly())
	for _, seq := range []uint64{3, 5, 7, 9, 11} {
		s.push("k", seq, p)
	}
	l := s.lines["k"]
	first, second := l.extract(3), l.extract(7) // the second is ahead of a waiting job, as after a restart
	first.phase, first.calls = calling, 1
	second.calls, second.notBefore = 1, now.Add(30*time.Minute)
	hour := s.rules.Interval(l.limits.Rate).Duration()
	l.tat = now.Add(hour)

	jobs := s.firstJobs(l, 4, now)
	if len(jobs) != 4 {
		t.Fatalf("%d jobs, want 4", len(jobs))
	}
	for i, want := range []JobState{
		{Position: 1, Seq: 3, Phase: JobCalling, Calls: 1},
		{Position: 2, Seq: 5, Phase: JobWaits},
		{Position: 3, Seq: 7, Phase: JobRetries, Calls: 1},
		{Position: 4, Seq: 9, Phase: JobWaits},
	} {
		got := jobs[i]
		if i > 0 && (got.ETA == nil || !got.ETA.Equal(now.Add(time.Duration(i)*hour).Time())) {
			t.Errorf("job %d is to start at %v, want %v", i, got.ETA, now.Add(time.Duration(i)*hour).Time())
		}
		if got.ETA = nil; got != want {
			t.Errorf("job %d is %+v, want %+v", i, got, want)
		}
	}
	if all := s.firstJobs(l, 1000, now); len(all) != 5 || all[4].Seq != 11 {
		t.Errorf("all are %+v", all)
	}
	if state := s.inspect(l, now); state.Depth != 5 || state.InFlight != 1 || state.WaitMS != (5*hour).Milliseconds() {
		t.Errorf("the bucket is %+v", state)
	}
}

// TestDeepest chooses among many keys while others change them: those that stay are chosen rightly, and nobody waits
// for the lock for long.
func TestDeepest(t *testing.T) {
	const keys, limit = 50_000, 100
	now := bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s, p := newSchedule(&Policy{}, pace{}, func(string) bucket.Micros { return 0 }), &Partition{open: true}
	l := &lane{s: s, now: func() bucket.Micros { return now }}
	rnd := rand.New(rand.NewPCG(3, 4))
	var want []keyDepth
	seq := uint64(0)
	for i := range keys {
		depth := 1 + rnd.IntN(3)
		if i%250 == 0 {
			depth += 2 + rnd.IntN(50)
		}
		key := fmt.Sprintf("k%d", i)
		for range depth {
			seq++
			s.push(key, seq, p)
		}
		want = append(want, keyDepth{key, depth})
	}
	want = keepDeepest(want, limit)

	stop, longest := make(chan struct{}), time.Duration(0)
	var changing sync.WaitGroup
	changing.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			asked := time.Now()
			l.mu.Lock()
			longest = max(longest, time.Since(asked))
			s.push(fmt.Sprintf("passing%d", n), seq+n+1, p)
			if n > 10 {
				s.forget(s.find(fmt.Sprintf("passing%d", n-10)))
			}
			l.mu.Unlock()
		}
	})
	for range 5 {
		if got := l.deepest(limit); !slices.Equal(got, want) {
			t.Errorf("chose %v, want %v", got, want)
		}
	}
	close(stop)
	await.Return(t, "the end of the changes", changing.Wait)
	t.Logf("the lock was waited for at most %s", longest)
}
