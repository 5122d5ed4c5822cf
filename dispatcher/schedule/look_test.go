package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// looker returns a desk whose policy shares answers; the test plays the dispatcher that looks them up.
func looker(limits bucket.KeyLimits) *desk {
	d := newDesk(limits)
	d.policy.Reuse = true
	return d
}

// goOn lets a millisecond pass after a turn in which every ask gets a slot and every call leaves.
func (d *desk) goOn() Effects {
	fx := d.turn()
	for _, j := range fx.Start {
		d.Sent(j, d.now)
	}
	if len(fx.Asks) > 0 {
		r := Reply{Sent: d.now, Came: d.now}
		for range fx.Asks {
			r.Answers = append(r.Answers, bucket.Answer{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}})
		}
		d.Answer(&fx, r)
	}
	d.now = d.now.Add(time.Millisecond)
	return fx
}

func onceAnHour() bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: 1000, InFlight: 4}
}

// TestAnswersNeedNoSlot checks that the jobs of a key that waits an hour for its next slot are looked at one after the
// other, and end if there is an answer. The first job without an answer ends the row.
func TestAnswersNeedNoSlot(t *testing.T) {
	for name, stop := range map[string]func(d *desk){
		"own rate": func(d *desk) { d.Queues.byKey["a"].TAT = d.now.Add(time.Hour) },
		"api held": func(d *desk) { d.Holds.Hold(nil, d.now.Add(time.Hour), "429") },
		"key held": func(d *desk) { d.Holds.Hold(d.Queues.byKey["a"], d.now.Add(time.Hour), "429") },
		"breaker": func(d *desk) {
			d.Holds.breaker.open(BreakerPolicy{Failures: 1, Min: time.Hour, Max: time.Hour}, d.now, 0)
		},
		"far limit":  func(d *desk) { d.gate.shut("q", d.now.Add(time.Hour)) },
		"store down": func(d *desk) { d.store.failures, d.gate = 1, gate{by: storeDown, opens: d.now.Add(time.Hour)} },
	} {
		d := looker(onceAnHour())
		d.add("a", "a", "a", "a")
		stop(d)
		ended, looks, made := 0, 0, 0
		for range 20 {
			fx := d.turn()
			made += len(fx.Load) + len(fx.Asks)
			for _, j := range fx.Look {
				if looks++; j.Seq == 3 {
					d.Looked(j, Look{})
					continue
				}
				if !d.Forgo(j) {
					t.Fatalf("%s: job %d may not end", name, j.Seq)
				}
				d.Finished(j)
				ended++
			}
		}
		if ended != 2 || looks != 3 || made != 0 || d.census.unfinished != 2 {
			t.Errorf("%s: %d jobs ended after %d looks, %d were made ready, %d are left", name, ended, looks, made, d.census.unfinished)
		}
		if d.Pipe.settling != 0 || d.looks.running != 0 || d.looks.ahead != 1 {
			t.Errorf("%s: %d settle, looks %+v", name, d.Pipe.settling, d.looks)
		}
	}
}

// TestPausedKeysEndNoJob checks that no job ends with an answer while its key or the api is paused.
func TestPausedKeysEndNoJob(t *testing.T) {
	for _, key := range []string{"", "a"} {
		d := looker(onceAnHour())
		d.add("a")
		d.Holds.Pause(key, Pause{})
		if fx := d.turn(); len(fx.Look)+len(fx.Load) != 0 {
			t.Errorf("key %q is paused, and %d jobs are looked at", key, len(fx.Look)+len(fx.Load))
		}
		d.Queues.byKey["a"].TAT = d.now.Add(time.Hour)
		d.Holds.Resume(key, d.now)
		looked := d.turn().Look
		if len(looked) != 1 {
			t.Fatalf("key %q is resumed, and %d jobs are looked at", key, len(looked))
		}
		d.Holds.Pause(key, Pause{})
		if d.Forgo(looked[0]) {
			t.Errorf("key %q was paused while a job was looked at, and the job ends", key)
		}
		d.Looked(looked[0], Look{Answered: true})
		if fx := d.turn(); len(fx.Look) != 0 {
			t.Errorf("key %q is paused, and a job with an answer is looked at", key)
		}
		d.Holds.Resume(key, d.now)
		if fx := d.turn(); len(fx.Look) != 1 || !d.Forgo(fx.Look[0]) {
			t.Errorf("key %q is resumed, and %d jobs are looked at", key, len(fx.Look))
		}
	}
}

// TestAwaitingKeepsItsPlace checks that a job that waits for an equal one is not overtaken by jobs of its key, keeps no
// other key waiting, and is called when the wait is over.
func TestAwaitingKeepsItsPlace(t *testing.T) {
	d := looker(fast(4))
	d.add("a", "a", "b")
	fx := d.Step(d.now)
	var first *Job
	for _, j := range fx.Load {
		if j.Queue.Key == "a" {
			first = j
			d.Looked(j, Look{Awaits: "job x"})
			continue
		}
		j.Policy = d.policy
		d.Loaded(j)
	}
	if first == nil {
		t.Fatal("no job of a is made ready")
	}
	called := map[string]int{}
	for range 500 {
		fx := d.goOn()
		for _, j := range append(fx.Look, fx.Load...) {
			if j.Queue.Key == "a" {
				t.Fatalf("job %d overtakes", j.Seq)
			}
		}
		for _, j := range fx.Start {
			called[j.Queue.Key]++
		}
	}
	if called["a"] != 0 || called["b"] != 1 {
		t.Fatalf("called: %v", called)
	}
	q := d.Queues.byKey["a"]
	if w := d.At(d.now).waits(q); w.For != WaitAnswer || w.Why != "job x" || w.Until != nil {
		t.Errorf("it waits for %+v", w)
	}
	if jobs := d.At(d.now).FirstJobs(q, 2); jobs[0].Awaits != "job x" || jobs[0].ETA != nil || jobs[0].Phase != JobWaits || jobs[1].Awaits != "" {
		t.Errorf("its jobs are %+v", jobs)
	}
	d.Waken(first, false)
	for range 500 {
		for _, j := range d.goOn().Look {
			d.Looked(j, Look{})
		}
	}
	if first.Phase != calling || q.Jobs.count(calling) != 2 {
		t.Errorf("job 1 is in phase %d, and %d jobs of its key are called", first.Phase, q.Jobs.count(calling))
	}
}

// TestAwaitedRetryPasses checks a job that waits for the answer of a later job of its own key, which was called and
// failed while the first calls of the jobs before it were taken back. The later job is called again, since both would
// wait for ever otherwise. The other jobs are not called.
func TestAwaitedRetryPasses(t *testing.T) {
	d := looker(fast(4))
	d.add("a", "a", "a")
	q := d.Queues.byKey["a"]
	for i := 0; q.Jobs.count(calling) < 3; i++ {
		if i == 500 {
			t.Fatal("three jobs are not called")
		}
		for _, j := range d.goOn().Look {
			d.Looked(j, Look{})
		}
	}
	first, second, third := q.Jobs[0], q.Jobs[1], q.Jobs[2]
	for _, j := range []*Job{first, second, third} {
		d.Ended(j, nil, d.now)
		d.Rest(j, d.now)
	}
	third.Calls = 1
	for i := 0; first.awaits == ""; i++ {
		if i == 500 {
			t.Fatal("the first job is not looked at")
		}
		fx := d.Step(d.now)
		for _, j := range append(fx.Look, fx.Load...) {
			if j.Policy = d.policy; j == first {
				d.Looked(j, Look{Awaits: "job 3"})
				continue
			}
			d.Loaded(j)
		}
		d.now = d.now.Add(time.Millisecond)
	}
	d.add("a")
	made := 0
	for range 500 {
		fx := d.goOn()
		for _, j := range fx.Start {
			if j != third {
				t.Fatalf("job %d is called", j.Seq)
			}
		}
		made += len(fx.Load)
	}
	if third.Phase != calling || first.Phase != resting || second.Phase != resting {
		t.Errorf("the job that is awaited is in phase %d, the one that awaits it in %d, the one between them in %d", third.Phase, first.Phase, second.Phase)
	}
	if made > 2 {
		t.Errorf("jobs were made ready %d times, for one call", made)
	}
}

// TestWithdrawnJobsAreLookedAtAgain checks a job for which no answer was found before its slot, and which was then made
// ready and got no slot. It is looked at again, so that it ends as soon as there is an answer, and not only at its next
// slot.
func TestWithdrawnJobsAreLookedAtAgain(t *testing.T) {
	d := looker(onceAnHour())
	d.add("a")
	q := d.Queues.byKey["a"]
	q.TAT = d.now.Add(time.Hour)
	looked := d.turn().Look
	if len(looked) != 1 {
		t.Fatalf("%d jobs are looked at", len(looked))
	}
	d.Looked(looked[0], Look{})
	d.now = d.now.Add(time.Hour)
	for i := 0; looked[0].Phase != ready; i++ {
		if i == 10 {
			t.Fatal("it is not made ready")
		}
		d.turn()
	}
	d.Holds.Hold(q, d.now.Add(time.Hour), "429")
	if fx := d.turn(); len(fx.Stale) != 1 || len(fx.Look) != 1 {
		t.Errorf("%d jobs are withdrawn, %d are looked at", len(fx.Stale), len(fx.Look))
	}
}

// TestWakingLooksAgain checks that an answer makes the schedule look again at a job that waited for an equal one, and
// at a job for which no answer was found before.
func TestWakingLooksAgain(t *testing.T) {
	d := looker(onceAnHour())
	d.add("a", "b")
	for _, key := range []string{"a", "b"} {
		d.Queues.byKey[key].TAT = d.now.Add(time.Hour)
	}
	looked := d.turn().Look
	if len(looked) != 2 {
		t.Fatalf("%d jobs are looked at", len(looked))
	}
	d.Looked(looked[0], Look{Awaits: "x"})
	d.Looked(looked[1], Look{})
	if fx := d.turn(); len(fx.Look) != 0 {
		t.Fatalf("%d jobs are looked at again", len(fx.Look))
	}
	for _, j := range looked {
		d.Waken(j, true)
	}
	if fx := d.turn(); len(fx.Look) != 2 {
		t.Errorf("%d jobs are looked at when there is an answer", len(fx.Look))
	}
}

// TestCancelledWhileItWaits checks that a cancelled job ends if it waits for an equal one, and that a cancelled job
// does not end with an answer if it is being looked at.
func TestCancelledWhileItWaits(t *testing.T) {
	d := looker(onceAnHour())
	d.add("a", "b")
	for _, key := range []string{"a", "b"} {
		d.Queues.byKey[key].TAT = d.now.Add(time.Hour)
	}
	looked := d.turn().Look
	d.Looked(looked[0], Look{Awaits: "x"})
	for _, j := range looked {
		if _, c := d.Cancel(j.Queue.Key, j.Seq); c != CancelTaken {
			t.Fatalf("job %d: %s", j.Seq, c)
		}
	}
	if fx := d.turn(); len(fx.Cancel) != 1 || fx.Cancel[0] != looked[0] {
		t.Errorf("cancelled: %v", fx.Cancel)
	}
	if d.Forgo(looked[1]) {
		t.Error("a cancelled job ends with an answer")
	}
	d.Looked(looked[1], Look{})
	if fx := d.turn(); len(fx.Cancel) != 1 || fx.Cancel[0] != looked[1] {
		t.Errorf("cancelled after the look: %v", fx.Cancel)
	}
}

// TestAnswersWaitForTheirTurn checks that a job with an answer does not end before an earlier job that is being made
// ready. It is not made ready itself meanwhile, and it is looked at again when the earlier job is called.
func TestAnswersWaitForTheirTurn(t *testing.T) {
	d := looker(bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4})
	d.add("a", "a")
	var loading []*Job
	for range 5 {
		loading = append(loading, d.Step(d.now).Load...)
	}
	if len(loading) != 2 {
		t.Fatalf("%d jobs are made ready at once", len(loading))
	}
	if d.Forgo(loading[1]) {
		t.Fatal("the second job ends before the first has begun")
	}
	d.Looked(loading[1], Look{Answered: true})
	if fx := d.Step(d.now); len(fx.Load)+len(fx.Look) != 0 {
		t.Error("the second job is made ready again, or looked at")
	}
	loading[0].Policy = d.policy
	d.Loaded(loading[0])
	for range 50 {
		fx := d.goOn()
		if len(fx.Load) > 0 {
			t.Fatal("a job that has an answer is made ready")
		}
		if len(fx.Look) > 0 {
			if loading[0].Phase != calling || fx.Look[0] != loading[1] || !d.Forgo(fx.Look[0]) {
				t.Errorf("job %d is looked at, in phase %d of the first job", fx.Look[0].Seq, loading[0].Phase)
			}
			return
		}
	}
	t.Error("the second job is never looked at")
}

// TestLooksAreBounded checks that only so many jobs are looked at at the same time, and none while too many outcomes
// wait to be stored.
func TestLooksAreBounded(t *testing.T) {
	d := looker(onceAnHour())
	keys := names("k", 3*maxLooking)
	d.add(keys...)
	d.Holds.Hold(nil, d.now.Add(time.Hour), "429")
	looked, left := d.turn().Look, len(keys)
	for left > 0 {
		if len(looked) > maxLooking || len(looked) == 0 {
			t.Fatalf("%d jobs are looked at at once, %d are left", len(looked), left)
		}
		d.Looked(looked[0], Look{})
		left--
		looked = append(looked[1:], d.turn().Look...)
		if left == len(looked) {
			break
		}
	}
	for _, j := range looked {
		d.Looked(j, Look{})
	}
	if d.looks.ahead != len(keys) || d.looks.running != 0 || d.Next(d.now) <= d.now && len(d.Step(d.now).Look) > 0 {
		t.Errorf("looks: %d wait for their slots, %d run", d.looks.ahead, d.looks.running)
	}
	d.Pipe.settling = maxSettling
	d.add("late")
	if fx := d.turn(); len(fx.Look) != 0 {
		t.Error("a job is looked at while too many outcomes wait to be stored")
	}
	if d.Next(d.now) <= d.now {
		t.Error("the schedule spins while too many outcomes wait to be stored")
	}
	d.Pipe.settling--
	if d.Next(d.now) > d.now || len(d.turn().Look) != 1 {
		t.Error("no job is looked at when there is room again")
	}
}

// TestNoReuseNoLook checks that no job is looked at if the policy shares no answers.
func TestNoReuseNoLook(t *testing.T) {
	d := newDesk(onceAnHour())
	d.add("a")
	d.Queues.byKey["a"].TAT = d.now.Add(time.Hour)
	if fx := d.turn(); len(fx.Look) != 0 || len(d.Queues.byKey["a"].Jobs) != 0 {
		t.Errorf("%d jobs are looked at", len(fx.Look))
	}
}
