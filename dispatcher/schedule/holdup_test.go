package schedule

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// waitingRoom runs a schedule in virtual time on a real store of slots, and keeps what held up each job.
type waitingRoom struct {
	*Schedule
	t      *testing.T
	store  *bucket.Memory
	part   *Partition
	began  bucket.Micros
	now    bucket.Micros
	next   events
	took   time.Duration            // by each call
	down   bool                     // the store does not answer
	came   map[uint64]bucket.Micros // when a job began to wait
	heldUp map[uint64]Holdup        // by job, when it was called or expired
	waited map[uint64]time.Duration
}

func newWaitingRoom(t *testing.T, rules bucket.Rules) *waitingRoom {
	t.Helper()
	const began = 1_700_000_000_000_000
	r := &waitingRoom{
		t: t, part: &Partition{Open: true}, began: began, now: began, took: time.Millisecond, came: map[uint64]bucket.Micros{},
		heldUp: map[uint64]Holdup{}, waited: map[uint64]time.Duration{},
	}
	var err error
	if r.store, err = bucket.NewMemory(rules, func() bucket.Micros { return r.now }); err != nil {
		t.Fatal(err)
	}
	r.Schedule = New(&Policy{Rules: rules}, Pace{
		PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(key string) bucket.Micros { tat, _ := r.store.TAT(key); return tat })
	return r
}

// at schedules an event for so long after the beginning.
func (r *waitingRoom) at(after time.Duration, do func()) {
	r.next = append(r.next, event{r.began.Add(after), do})
}

// job adds a job so long after the beginning.
func (r *waitingRoom) job(after time.Duration, key string, seq uint64) {
	r.at(after, func() {
		if r.came[seq] == 0 {
			r.came[seq] = r.now
		}
		r.Push(key, seq, r.part)
	})
}

// run runs until so long after the beginning.
func (r *waitingRoom) run(until time.Duration) {
	for end := r.began.Add(until); r.now < end; {
		fx := r.Step(r.now)
		for _, j := range fx.Load {
			j.Policy, j.Costs = r.policy, make([]int64, len(r.Shared))
			for i := range j.Costs {
				j.Costs[i] = 1
			}
			r.Loaded(j)
		}
		for _, j := range fx.Start {
			r.leave(j)
			r.Sent(j, r.now)
			r.at(r.began.Until(r.now)+r.took, func() {
				if err := r.store.Settle(context.Background(), []bucket.Use{{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}}); err != nil {
					r.t.Fatal(err)
				}
				r.Ended(j, nil, r.now)
				r.Finished(j)
			})
		}
		for _, j := range fx.Expire {
			r.leave(j)
			r.Finished(j)
		}
		if err := r.store.Settle(context.Background(), fx.Unused); err != nil {
			r.t.Fatal(err)
		}
		if len(fx.Asks) > 0 {
			reply := Reply{Sent: r.now, Came: r.now, Err: errors.New("nobody answers")}
			if !r.down {
				reply.Answers, reply.Err = r.store.Reserve(context.Background(), fx.Asks)
			}
			r.Answer(&fx, reply)
		}
		if r.Next(r.now) <= r.now {
			continue
		}
		r.now = min(r.Next(r.now), end)
		var due *event
		for i := range r.next {
			if e := &r.next[i]; e.do != nil && e.at <= r.now && (due == nil || e.at < due.at) {
				due = e
			}
		}
		if due != nil {
			do := due.do
			r.now, due.do = due.at, nil
			do()
		}
	}
}

// leave keeps the holdup of a job whose call starts, or that expires.
func (r *waitingRoom) leave(j *Job) {
	since := r.came[j.Seq]
	r.heldUp[j.Seq], r.waited[j.Seq] = r.At(r.now).HoldupOf(j, since), since.Until(r.now)
	if h := r.heldUp[j.Seq]; h.Took > r.waited[j.Seq] || (h.For == "") != (h.Took == 0) || h.For != "" && h.String() == "" {
		r.t.Errorf("of job %d, which had waited %s, %+v is told: %s", j.Seq, r.waited[j.Seq], h, h)
	}
}

// TestHoldup checks that the holdup of each job that was called or expired names the cause that kept it longest,
// and for how long.
func TestHoldup(t *testing.T) {
	slow := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 8}
	account := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 1, Per: 2 * time.Second, Burst: 1}}
	hourly := bucket.Limit{Name: "hourly", Quota: &bucket.Quota{Count: 1, Per: time.Hour, Window: bucket.Sliding}}
	const s = time.Second
	type want struct {
		seq   uint64
		what  WaitFor
		limit string
		took  time.Duration
	}
	for name, c := range map[string]struct {
		key    bucket.KeyLimits
		shared []bucket.Limit
		make   func(r *waitingRoom)
		run    time.Duration
		want   []want
	}{
		"its key's rate": {
			key: slow, make: func(r *waitingRoom) {
				for i := range uint64(5) {
					r.job(0, "a", 1+i)
				}
			}, run: 10 * s, want: []want{{seq: 1}, {seq: 3}, {seq: 5}},
		},
		"a pause of its key": {
			key: slow, make: func(r *waitingRoom) {
				r.at(0, func() { r.Holds.Pause("a", Pause{}) })
				for i := range uint64(5) {
					r.job(time.Duration(3*i)*s, "a", 1+i)
				}
				r.at(10*s, func() { r.Holds.Resume("a", r.now) })
				r.job(0, "b", 100)
			}, run: 30 * s, want: []want{{1, WaitPaused, "", 10 * s}, {3, WaitPaused, "", 4 * s}, {seq: 5}, {seq: 100}},
		},
		"a pause of the api": {
			key: slow, make: func(r *waitingRoom) {
				r.job(0, "a", 1)
				r.job(s, "a", 2)
				r.job(2*s, "a", 3)
				r.at(2*s+s/2, func() { r.Holds.Pause("", Pause{}) })
				r.job(3*s, "a", 4)
				r.at(10*s, func() { r.Holds.Resume("", r.now) })
			}, run: 30 * s, want: []want{{seq: 1}, {seq: 2}, {seq: 3}, {4, WaitPaused, "", 7 * s}},
		},
		"a hold of the api": {
			key: slow, make: func(r *waitingRoom) {
				r.at(0, func() { r.Holds.Hold(nil, r.now.Add(10*s), "429") })
				r.job(s, "a", 1)
				r.job(2*s, "a", 2)
			}, run: 30 * s, want: []want{{1, WaitAPIHeld, "", 9 * s}, {2, WaitAPIHeld, "", 8 * s}},
		},
		"a hold of the key": {
			key: slow, make: func(r *waitingRoom) {
				r.job(0, "a", 1)
				r.at(s/2, func() { r.Holds.Hold(r.Queue("a", r.part), r.now.Add(10*s), "429") })
				r.job(s, "a", 2)
			}, run: 30 * s, want: []want{{seq: 1}, {2, WaitHeld, "", 9*s + s/2}},
		},
		"a shared rate": {
			key: slow, shared: []bucket.Limit{account}, make: func(r *waitingRoom) {
				for i := range uint64(5) {
					r.job(0, fmt.Sprint("k", i), 1+i)
				}
			}, run: 30 * s, want: []want{{seq: 1}, {2, WaitLimit, "account", 2 * s}, {5, WaitLimit, "account", 8 * s}},
		},
		"a shared rate, behind others of its key": {
			key: slow, shared: []bucket.Limit{account}, make: func(r *waitingRoom) {
				for i := range uint64(6) {
					r.job(0, "a", 1+i)
				}
			}, run: 30 * s, want: []want{{6, WaitLimit, "account", 5 * s}},
		},
		"a quota": {
			key: slow, shared: []bucket.Limit{hourly}, make: func(r *waitingRoom) {
				r.job(0, "a", 1)
				r.job(s, "b", 2)
				r.job(s, "b", 3)
			}, run: 3 * time.Hour, want: []want{{seq: 1}, {2, WaitLimit, "hourly", time.Hour - s}, {3, WaitLimit, "hourly", 2*time.Hour - s}},
		},
		"calls of its key": {
			key: bucket.KeyLimits{Rate: slow.Rate, Capacity: 10, InFlight: 1}, make: func(r *waitingRoom) {
				r.took = 5 * s
				r.job(0, "a", 1)
				r.job(0, "a", 2)
				r.job(0, "a", 3)
			}, run: 30 * s, want: []want{{2, WaitInFlight, "", 5 * s}, {3, WaitInFlight, "", 10 * s}},
		},
		"a limit of calls at once": {
			key: slow, shared: []bucket.Limit{{Name: "lines", InFlight: 1}}, make: func(r *waitingRoom) {
				r.took = 5 * s
				r.job(0, "a", 1)
				r.job(0, "b", 2)
			}, run: 30 * s, want: []want{{2, WaitLimit, "lines", 5 * s}},
		},
		"the limiter": {
			key: slow, make: func(r *waitingRoom) {
				r.down = true
				r.job(0, "a", 1)
				r.at(10*s, func() { r.down = false })
			}, run: 30 * s, want: []want{{1, WaitLimiter, "", 10 * s}},
		},
		"the reading of its queue": {
			key: slow, make: func(r *waitingRoom) {
				r.part.Open = false
				r.job(0, "a", 1)
				r.at(10*s, func() { r.Queues.OpenPartition(r.part) })
			}, run: 30 * s, want: []want{{1, WaitReading, "", 10 * s}},
		},
		"a time when nobody had its queue": {
			key: slow, make: func(r *waitingRoom) {
				r.came[1] = r.now.Add(-time.Hour)
				r.job(0, "a", 1)
				r.job(s, "a", 2)
			}, run: 30 * s, want: []want{{1, WaitReading, "", time.Hour}, {seq: 2}},
		},
		"what was longest": {
			key: slow, shared: []bucket.Limit{account}, make: func(r *waitingRoom) {
				r.at(0, func() { r.Holds.Pause("a", Pause{}) })
				r.job(0, "a", 1)
				r.at(3*s, func() { r.Holds.Resume("a", r.now); r.Holds.Hold(nil, r.now.Add(9*s), "429") })
				r.at(12*s, func() { r.Holds.Pause("a", Pause{}) })
				r.at(14*s, func() { r.Holds.Resume("a", r.now) })
				r.job(10*s, "a", 2)
				r.job(11*s, "b", 3)
			}, run: 60 * s, want: []want{{1, WaitAPIHeld, "", 9 * s}, {3, WaitAPIHeld, "", s}},
		},
		"a pause while it expired": {
			key: slow, make: func(r *waitingRoom) {
				r.at(0, func() { r.part.Expect(1, r.now.Add(10*s)) })
				r.at(0, func() { r.Holds.Pause("", Pause{}) })
				r.job(0, "a", 1)
			}, run: 30 * s, want: []want{{1, WaitPaused, "", 10 * s}},
		},
		"a hold that explains nothing": {
			key: slow, make: func(r *waitingRoom) {
				r.at(0, func() { r.Holds.Hold(nil, r.now.Add(2*s), "429") })
				for i := range uint64(50) {
					r.job(0, "a", 1+i)
				}
			}, run: 60 * s, want: []want{{1, WaitAPIHeld, "", 2 * s}, {seq: 50}},
		},
		"nothing since it came": {
			key: slow, make: func(r *waitingRoom) {
				r.at(0, func() { r.Holds.Pause("a", Pause{}) })
				for i := range uint64(20) {
					r.job(0, "a", 1+i)
				}
				r.at(100*s, func() { r.Holds.Resume("a", r.now) })
				r.job(105*s, "a", 50)
			}, run: 150 * s, want: []want{{20, WaitPaused, "", 100 * s}, {seq: 50}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWaitingRoom(t, bucket.Rules{Key: c.key, Shared: c.shared})
			c.make(r)
			r.run(c.run)
			for _, want := range c.want {
				// The key's rate also delays the job, and the store is asked again only after a while.
				about := 100*time.Millisecond + want.took/10
				got, ended := r.heldUp[want.seq]
				if !ended {
					t.Fatalf("job %d has not ended", want.seq)
				}
				if got.For != want.what || got.Limit != want.limit || (got.Took-want.took).Abs() > about {
					t.Errorf("job %d, which had waited %s, was held up by %q %q for %s, want %q %q for %s",
						want.seq, r.waited[want.seq], got.For, got.Limit, got.Took, want.what, want.limit, want.took)
				}
			}
		})
	}
}

// TestHoldupsOfManyCauses checks that a queue with more causes than room keeps those that took longest, reports
// no more than there was, and drops what is over.
func TestHoldupsOfManyCauses(t *testing.T) {
	var h holdups
	now := tick(1<<32 - 1000) // it comes around meanwhile
	h.turn(noCause, now)
	began := now
	for c := range cause(20) {
		h.turn(2+c, now)
		now += 10
		if c == 7 {
			now += 400
		}
		h.turn(noCause, now)
		now += 100
	}
	if c, took := h.longest(began); c != 9 || took != 410 {
		t.Errorf("since the beginning cause %d is told with %d, want 9 with 410", c, took)
	}
	since := began + 7*110 + 210 // in the middle of it
	if c, took := h.longest(since); c != 9 || took != 200 {
		t.Errorf("since the middle cause %d is told with %d, want 9 with 200", c, took)
	}
	h.forget(now - 50)
	if c, took := h.longest(began); took != 0 {
		t.Errorf("what was over is told: cause %d with %d", c, took)
	}
}

// TestMostCauses checks that causes beyond the bound are not reported, and that those before it still are.
func TestMostCauses(t *testing.T) {
	s, p, now := inspected(hourly())
	q := s.Push("k", 500, p)
	limit := func(i int) keeping { return keeping{what: WaitLimit, limit: fmt.Sprint("limit", i)} }
	for i := range 2 * mostCauses {
		s.causes.of(limit(i))
	}
	if len(s.causes) != mostCauses {
		t.Errorf("%d causes are told apart, at most %d may", len(s.causes), mostCauses)
	}
	if c := s.causes.of(limit(2*mostCauses - 1)); c != noCause {
		t.Errorf("a cause too many is told as %+v", s.causes[c])
	}
	q.holdups.turn(s.causes.of(limit(100)), tickOf(now))
	if got := s.At(now.Add(time.Hour)).HoldupOf(&Job{Queue: q}, now); got.Limit != "limit100" {
		t.Errorf("%+v is told, want limit100", got)
	}
}

// TestMissedBurstIsCalled checks that a key's slow rate gets back all slots of a burst, granted one by one as under a
// shared limit, if a busy machine misses the first of them. All calls are then made at once.
func TestMissedBurstIsCalled(t *testing.T) {
	const burst = 10
	start := bucket.Micros(1_700_000_000_000_000)
	now := start
	rules := bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: burst, Per: time.Hour, Burst: burst}, Capacity: 100, InFlight: burst},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}},
		Jitter: 5 * time.Millisecond,
	}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	pace := Pace{PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}
	s := New(&Policy{Rules: rules}, pace, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	for seq := range uint64(burst) {
		s.Push("k", seq+1, p)
	}
	var stuck *Job
	asks, calls := 0, 0
	for now < start.Add(time.Second) {
		fx := s.Step(now)
		for _, j := range fx.Load {
			j.Policy, j.Costs = s.policy, []int64{1}
			s.Loaded(j)
		}
		for _, j := range fx.Start {
			if stuck == nil {
				stuck = j
				continue
			}
			calls++
			s.Sent(j, now)
		}
		if err := store.Settle(t.Context(), fx.Unused); err != nil {
			t.Fatal(err)
		}
		if len(fx.Asks) > 0 {
			a, err := store.Reserve(t.Context(), fx.Asks)
			s.Answer(&fx, Reply{Sent: now, Came: now, Answers: a, Err: err})
			if asks += len(fx.Asks); asks == burst {
				now = now.Add(50 * time.Millisecond)
				s.Unstart(stuck)
			}
			continue
		}
		if s.Next(now) > now {
			now = now.Add(time.Millisecond)
		}
	}
	if calls != burst || s.Forfeited != burst {
		t.Errorf("%d of %d calls were made within a second, and %d slots were missed", calls, burst, s.Forfeited)
	}
}

// TestBusyMachine checks that a machine on which a thousand calls are due, and which sends one in a millisecond, spends
// most of its time on calls that leave. Each call that misses its slot costs it as much as one that leaves.
func TestBusyMachine(t *testing.T) {
	d := newDesk(fast(4))
	for range 10 {
		d.add(names("k", 100)...)
	}
	const spans = 900
	var due []*Job
	left := 0
	for range spans {
		fx := d.turn()
		due = append(due, fx.Start...)
		r := Reply{Sent: d.now, Came: d.now}
		for _, a := range fx.Asks {
			grants := make([]bucket.Grant, a.Want)
			for i := range grants {
				grants[i] = bucket.Grant{At: d.now, TAT: d.now.Add(d.spacing)}
			}
			r.Answers = append(r.Answers, bucket.Answer{Grants: grants})
		}
		if len(fx.Asks) > 0 {
			d.Answer(&fx, r)
		}
		d.now = d.now.Add(time.Millisecond)
		if len(due) == 0 {
			continue
		}
		j := due[0]
		if due = due[1:]; d.now > d.At(d.now).Latest(j) {
			d.Unstart(j)
			continue
		}
		left++
		d.Sent(j, d.now)
		d.Ended(j, nil, d.now)
		d.Finished(j)
	}
	if t.Logf("%d calls left in %d ms, %d slots were missed", left, spans, d.Forfeited); left < spans/2 || d.Forfeited > 2*int64(left) {
		t.Error("the machine was busy with calls that missed their slots")
	}
	if e := &d.Pipe.exit; e.leaving > int(e.most) || e.leaving < 0 {
		t.Errorf("%d jobs count as leaving, of at most %v", e.leaving, e.most)
	}
}

// TestHoldupByTheLimiter checks that a letter does not say that the limiter was silent: it may have answered with a
// refusal.
func TestHoldupByTheLimiter(t *testing.T) {
	if text := (Holdup{For: WaitLimiter}).String(); text != "for the limiter, which did not answer or refused" {
		t.Errorf("a letter says %q", text)
	}
}
