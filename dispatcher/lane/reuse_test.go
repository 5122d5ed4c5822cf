package lane

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestWhoMayForgo checks that only a job that was certainly never called may end with another job's answer.
func TestWhoMayForgo(t *testing.T) {
	t.Parallel()
	redriven := func(billed deadletter.Billed) func(*Job) {
		return func(j *Job) {
			j.Message.Redrives, j.Message.Header = 1, nats.Header{deadletter.HeaderBilled: {string(billed)}}
		}
	}
	for _, c := range []struct {
		what   string
		change func(*Job)
		may    bool
	}{
		{"a new job", func(*Job) {}, true},
		{"a job that was called", func(j *Job) { j.Calls = 1 }, false},
		{"a job in doubt", func(j *Job) { j.Doubt.Recall(deadletter.BilledUnknown, "") }, false},
		{"a job whose call was not billed before a restart", func(j *Job) { j.Doubt.Recall(deadletter.NotBilled, "") }, true},
		{"a job whose result is barred", func(j *Job) { j.MustCall = true }, false},
		{"a redriven job that was never billed", redriven(deadletter.NotBilled), true},
		{"a redriven job that may have been billed", redriven(deadletter.BilledUnknown), false},
		{"a redriven job that was billed", redriven(deadletter.BilledYes), false},
		{"a redriven job of which nothing is said", redriven(""), true},
		{"a job that claims to have been billed", func(j *Job) { j.Message.Header = nats.Header{deadletter.HeaderBilled: {"yes"}} }, true},
	} {
		j := &Job{Job: &schedule.Job{}, Message: &ingest.Job{}}
		if c.change(j); j.mayForgo() != c.may {
			t.Errorf("%s may end with another job's answer: %v", c.what, !c.may)
		}
	}
}

// TestWhoseAnswersAreGivenAgain checks that only whole answers with a status of 2xx that are no streams are given
// again, and only if their job was called for others by the rule in force.
func TestWhoseAnswersAreGivenAgain(t *testing.T) {
	t.Parallel()
	rule := &reuse.Rule{}
	sum := rule.Of(&ingest.Job{})
	for _, c := range []struct {
		what   string
		change func(l *Lane, j *Job, r *httpcall.Response)
		ok     bool
	}{
		{"its leader's", func(*Lane, *Job, *httpcall.Response) {}, true},
		{"a job's that does not lead", func(l *Lane, j *Job, _ *httpcall.Response) { l.Equals.jobs.Leave(j) }, false},
		{"a job's that waits", func(l *Lane, j *Job, _ *httpcall.Response) { l.Equals.jobs.Leave(j); l.Equals.jobs.Wait(j, sum) }, false},
		{"by a rule that has been replaced", func(l *Lane, _ *Job, _ *httpcall.Response) { l.Equals = &Equals{Rule: rule} }, false},
		{"without a rule", func(l *Lane, _ *Job, _ *httpcall.Response) { l.Equals = nil }, false},
		{"without a rule at its call", func(_ *Lane, j *Job, _ *httpcall.Response) { j.Terms.API.Reuse = nil }, false},
		{"broken off", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Cut = true }, false},
		{"longer than what is kept", func(_ *Lane, _ *Job, r *httpcall.Response) { r.More = true }, false},
		{"a part", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Status = 206 }, false},
		{"unchanged", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Status = 304 }, false},
		{"an error", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Status = 404 }, false},
		{"none", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Status = 0 }, false},
		{"a stream", func(_ *Lane, _ *Job, r *httpcall.Response) { r.Header.Set("Content-Type", "text/event-stream") }, false},
	} {
		l := &Lane{Equals: &Equals{Rule: rule}}
		j := &Job{Job: &schedule.Job{}, Terms: &Terms{API: &httpcall.API{Reuse: rule}}}
		r := &httpcall.Response{Status: 200, Header: http.Header{}}
		l.Equals.jobs.Lead(j, sum)
		c.change(l, j, r)
		if got, ok := l.RequestOf(j, r); ok != c.ok || ok && got != sum {
			t.Errorf("the answer, %s: given again %v, as %s", c.what, ok, got)
		}
	}
}

// TestWhatJobsWaitFor checks that a job waits for a job of another key that asks the same, until that job has ended or
// will not be called soon.
func TestWhatJobsWaitFor(t *testing.T) {
	t.Parallel()
	const now = bucket.Micros(1_800_000_000_000_000)
	pause := func(l *Lane, j *Job) { l.Sched.Holds.Pause(j.Queue.Key, schedule.Pause{}); l.LeaveIdleLocked(j.Queue) }
	hold := func(l *Lane, j *Job) {
		l.Sched.Holds.Hold(j.Queue, now.Add(time.Hour), "429")
		l.LeaveIdleLocked(j.Queue)
	}
	for _, c := range []struct {
		what  string
		after func(l *Lane, leader *Job)
		waits bool
	}{
		{"is being called", func(*Lane, *Job) {}, true},
		{"has ended", (*Lane).LeaveLocked, false},
		{"was put back without a call", func(l *Lane, j *Job) { j.Calls = 0; l.RestLocked(j, now) }, false},
		{"is soon called again", func(l *Lane, j *Job) { l.RestLocked(j, now.Add(time.Second)) }, true},
		{"is called again in an hour", func(l *Lane, j *Job) { l.RestLocked(j, now.Add(time.Hour)) }, false},
		{"is polled", func(l *Lane, j *Job) { l.Sched.Submit(j.Job, false) }, true},
		{"is polled by a key that is paused", func(l *Lane, j *Job) { l.Sched.Submit(j.Job, false); pause(l, j) }, false},
		{"is polled by a key that is held", func(l *Lane, j *Job) { l.Sched.Submit(j.Job, false); hold(l, j) }, true},
		{"is called by a key that is paused", pause, true},
		{"is soon called again, by a key that is paused", func(l *Lane, j *Job) { l.RestLocked(j, now); pause(l, j) }, false},
		{"is soon called again, by a key that is held", func(l *Lane, j *Job) { l.RestLocked(j, now); hold(l, j) }, false},
		{"is to be called again by a slow key", func(l *Lane, j *Job) { j.Queue.TAT = now.Add(time.Hour); l.RestLocked(j, now) }, false},
		{"is to be called again by a key with operations in all its slots", func(l *Lane, j *Job) {
			l.Sched.Pipe.KeepSlot(&schedule.Job{Queue: j.Queue})
			l.RestLocked(j, now)
		}, false},
		{"asks something else now", func(l *Lane, j *Job) { l.CompareLocked(j, reuse.Sum{1}) }, false},
	} {
		rule := &reuse.Rule{For: time.Hour, AcrossKeys: true}
		l := &Lane{Equals: &Equals{Rule: rule, Answers: reuse.NewAnswers(1 << 10)}, Now: func() bucket.Micros { return now }}
		limits := bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 10, InFlight: 1}
		l.Sched = schedule.New(&schedule.Policy{Rules: bucket.Rules{Key: limits}, Reuse: true}, schedule.Pace{
			PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: time.Second, MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
		}, func(string) bucket.Micros { return 0 })
		p := &Owned{W: l}
		p.Of, p.Open = p, true
		l.Sched.Push("a", 1, &p.Partition)
		l.Sched.Push("b", 2, &p.Partition)
		staged := l.Sched.Step(now).Load
		if len(staged) != 2 {
			t.Fatalf("%d jobs are made ready", len(staged))
		}
		for i, gone := range []bool{false, true} {
			j := JobLocked(staged[i])
			j.Message = &ingest.Job{ID: j.Queue.Key}
			if a, got := l.CompareLocked(j, reuse.Sum{}); a != nil || got != gone {
				t.Fatalf("the job of key %s waits: %v", j.Queue.Key, got)
			}
		}
		leader := JobLocked(staged[0])
		leader.Calls = 1
		l.Sched.Unstage(leader.Job)
		c.after(l, leader)
		woken := slices.ContainsFunc(l.Sched.Step(now).Load, func(t *schedule.Job) bool { return t.Queue.Key == "b" })
		if woken == c.waits {
			t.Errorf("a job waits for one that %s: %v", c.what, !woken)
		}
	}
}
