package schedule

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
)

// inspected is a schedule with one open partition and a stopped clock.
func inspected(rules bucket.Rules) (*Schedule, *Partition, bucket.Micros) {
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 30 * time.Millisecond, ReserveAhead: 4 * time.Millisecond, GrantTTL: 4 * time.Millisecond, MaxStaged: 8, MaxCalls: 8},
		func(string) bucket.Micros { return 0 })
	return s, &Partition{Open: true}, bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
}

func hourly() bucket.Rules {
	return bucket.Rules{Key: bucket.KeyLimits{
		Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: 9, InFlight: 2,
	}}
}

// TestWaits puts a queue into every state and checks why it waits.
func TestWaits(t *testing.T) {
	task := func(q *KeyQueue, p Phase) *Job {
		seq := uint64(100 + len(q.Jobs))
		j := q.begin(backlog.Spot{Place: backlog.Place{Seq: seq}})
		j.Phase = p
		return j
	}
	second := bucket.Micros(time.Second / time.Microsecond)
	for _, c := range []struct {
		want  WaitFor
		until bucket.Micros // after now; 0 for none
		make  func(s *Schedule, q *KeyQueue, now bucket.Micros)
	}{
		{WaitRate, 5 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) { q.TAT = now + 5*second }},
		{WaitRate, 2 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) { task(q, granted).At = now + 2*second }},
		{WaitInFlight, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { task(q, calling); task(q, calling) }},
		{WaitNothing, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) {
			q.waits.Drop(bucket.Normal)
			task(q, calling)
			task(q, settling)
		}},
		{WaitHeld, 7 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) { s.Holds.Hold(q, now+7*second, "x") }},
		{WaitAPIHeld, 8 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.Hold(q, now+7*second, "x")
			s.Holds.Hold(nil, now+8*second, "x")
		}},
		{WaitHeld, 9 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.Hold(q, now+9*second, "x")
			s.Holds.Hold(nil, now+8*second, "x")
		}},
		{WaitRetry, 6 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) {
			q.waits.Drop(bucket.Normal)
			r := task(q, resting)
			r.Calls, r.NotBefore, r.Failed = 1, now+6*second, "x"
		}},
		{WaitLimit, 60 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = "account", now+60*second
		}},
		{WaitLimit, 0, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = "concurrent", now+60*second
		}},
		{WaitLimiter, 0, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = storeDown, now+second
		}},
		{WaitRoom, 0, func(s *Schedule, q *KeyQueue, _ bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.Pipe.calls = s.Pipe.pace.MaxCalls
		}},
		{WaitRoom, 0, func(s *Schedule, q *KeyQueue, _ bucket.Micros) { s.turns.AwaitRoom(q, bucket.Normal) }},
		{WaitReading, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { q.Partition.Open = false }},
		{WaitSlowed, 6 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.governor.restart(now)
			s.Holds.governor.next, q.TAT = now+6*second, now+5*second
		}},
		{WaitRate, 6 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.governor.restart(now)
			s.Holds.governor.next, q.TAT = now+6*second, now+6*second
		}},
		{WaitClearing, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { q.Partition.Open, q.Partition.Stalled = false, true }},
		{WaitStop, 0, func(s *Schedule, _ *KeyQueue, _ bucket.Micros) { s.drain = true }},
	} {
		rules := hourly()
		rules.Shared = []bucket.Limit{{Name: "account", Rate: &rules.Key.Rate}, {Name: "concurrent", InFlight: 1}}
		s, p, now := inspected(rules)
		q := s.Push("k", 500, p)
		c.make(s, q, now)
		w := s.At(now).waits(q)
		if w.For != c.want || (w.Until == nil) != (c.until == 0) || w.Until != nil && !w.Until.Equal((now+c.until).Time()) {
			t.Errorf("waits for %s until %v, want %s until %v", w.For, w.Until, c.want, (now + c.until).Time())
		}
		if (w.For == WaitHeld || w.For == WaitAPIHeld || w.For == WaitRetry) != (w.Why == "x") || (w.For == WaitLimit) != (w.Limit != "") {
			t.Errorf("%s tells limit %q and why %q", w.For, w.Limit, w.Why)
		}
	}
}

// TestFirstJobs lists jobs and waiting jobs in one order, with the times that the rate gives them.
func TestFirstJobs(t *testing.T) {
	s, p, now := inspected(hourly())
	for _, seq := range []uint64{3, 5, 7, 9, 11} {
		s.Push("k", seq, p)
	}
	q := s.byKey["k"]
	first, second := s.Extract(q, 3), s.Extract(q, 7) // the second is ahead of a waiting job, as after a restart
	first.Phase, first.Calls = calling, 1
	second.Calls, second.NotBefore = 1, now.Add(30*time.Minute)
	hour := s.policy.Rules.Interval(q.Limits.Rate).Duration()
	q.TAT = now.Add(hour)

	jobs := s.At(now).FirstJobs(q, 4)
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
	if all := s.At(now).FirstJobs(q, 1000); len(all) != 5 || all[4].Seq != 11 {
		t.Errorf("all are %+v", all)
	}
	if state := s.At(now).Inspect(q); state.Depth != 5 || state.InFlight != 1 || state.WaitMS != (5*hour).Milliseconds() {
		t.Errorf("the bucket is %+v", state)
	}
}

// TestArrivals checks that jobs that come are counted, for the key and for all, whether they may be called at
// once or not. Those that stood in the partition when it was read are not counted.
func TestArrivals(t *testing.T) {
	s, p, now := inspected(hourly())
	p.Reading = true
	s.Push("a", 1, p)
	s.PushEarly("a", 2, p, bucket.Normal, now, now+1000)
	p.Reading = false
	s.Push("a", 3, p)
	s.PushEarly("a", 4, p, bucket.Normal, now, 0)
	s.PushEarly("b", 5, p, bucket.Normal, now, now+1000)
	for key, want := range map[string]uint64{"a": 2, "b": 1} {
		if got := s.At(now).Inspect(s.Find(key)).Arrived; got != want {
			t.Errorf("%d jobs of %s have arrived, want %d", got, key, want)
		}
	}
	if got := s.At(now).Count(func(string) bool { return true }).Arrived; got != 3 {
		t.Errorf("%d jobs have arrived, want 3", got)
	}
}
