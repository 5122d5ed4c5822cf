package polling

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest"
)

// polling is a poller of one job, with what it asks and reports.
type polling struct {
	*Poller
	job  *lane.Job
	asks atomic.Int64 // polls that the api got
	uses []bucket.Use // reported to the store of slots
}

// newPolling returns a poller of a job that is polled until a time from now, whose api fails.
func newPolling(t *testing.T, until time.Duration) *polling {
	t.Helper()
	w := &polling{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.asks.Add(1)
		rw.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := &lane.Env{
		Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, Ahead: func() bucket.Micros { return 0 }, Log: slog.New(slog.DiscardHandler),
		Metrics: lane.NewMetrics(nil),
	}
	l := &lane.Lane{Env: env, Name: "pay", Log: env.Log, Now: env.Now, Clock: schedule.OtherClock, Wake: make(chan struct{}, 1)}
	api := &httpcall.API{
		Name: "pay", URL: at, Timeout: time.Minute, Headers: func() ([]ingest.HeaderField, error) { return nil, nil },
		Operation: &httpcall.Operation{Every: 24 * time.Hour, Answers: httpcall.Answers{{Status: 200, Means: httpcall.OperationDone}}, HoldSlot: true},
	}
	api.Rules.Shared = []bucket.Limit{{Name: "one", InFlight: 1}}
	l.Terms = env.NewTerms(api, nil)
	t.Cleanup(l.Terms.Polls.Close)
	l.Sched = schedule.New(l.Terms.Policy, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	settler := settle.New(l, settle.NewHoldNotes(l), func(bool) {})
	settler.Operations.Use(
		func(*lane.Job) {}, func(_ context.Context, uses []bucket.Use) { w.uses = append(w.uses, uses...) },
		func(*lane.Job, httpcall.Response) settle.Beyond { return settle.Beyond{} },
	)
	part := &lane.Owned{W: l, Bucket: &queue.Partition{}}
	part.Of = part
	w.Poller = New(l, settler)
	w.job = lane.JobLocked(l.Sched.Extract(l.Sched.Push("k", 1, &part.Partition), 1))
	w.job.Settle()
	w.job.Bind(l.Terms)
	w.job.Operation = &queue.Operation{Address: s.URL + "/1", Started: time.Now().Add(-time.Hour), Until: l.Now().Add(until), Holds: true}
	l.Sched.Submit(w.job.Job, true)
	return w
}

// TestPausedOperationWaits checks that a paused api is not polled, also when the time of an operation is over: the job
// does not end before the api was asked once more.
func TestPausedOperationWaits(t *testing.T) {
	w := newPolling(t, -time.Hour)
	w.Sched.Holds.Pause("", schedule.Pause{})
	w.poll(t.Context(), t.Context(), &poll{job: w.job}, w.Terms)
	if w.asks.Load() != 0 || len(w.agenda.waiting) != 1 || !w.job.IsPolled() {
		t.Errorf("%d polls, %d wait", w.asks.Load(), len(w.agenda.waiting))
	}
}

// TestLastPolls checks that an operation whose time was over while weir was down is not given up because the api cannot be
// asked right after the start.
func TestLastPolls(t *testing.T) {
	w := newPolling(t, -time.Hour)
	p := &poll{job: w.job}
	for i := range lastTries - 1 {
		if p.isGivenUp(httpcall.StillUnknown) || !p.isGivenUp(httpcall.OperationRunning) {
			t.Errorf("after %d polls that said nothing: given up by another one %v, by one that says running %v", i,
				p.isGivenUp(httpcall.StillUnknown), p.isGivenUp(httpcall.OperationRunning))
		}
		now := w.Now()
		w.poll(t.Context(), t.Context(), p, w.Terms)
		if len(w.agenda.waiting) != 1 || w.asks.Load() != int64(i+1) {
			t.Fatalf("%d polls, %d wait", w.asks.Load(), len(w.agenda.waiting))
		}
		if p = w.agenda.waiting[0]; now.Until(p.due) > 2*longestRest {
			t.Errorf("the next poll comes after %v", now.Until(p.due))
		}
		w.agenda.waiting = nil
	}
	if !p.isGivenUp(httpcall.StillUnknown) {
		t.Error("it is polled for ever")
	}
}

// TestDoneInTheLastPoll checks that an operation that is done when its time is over ends its job, and is not polled again.
func TestDoneInTheLastPoll(t *testing.T) {
	w := newPolling(t, -time.Hour)
	registry, err := lease.OpenRegistry(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if w.job.Part.Lease, err = registry.Join(t.Context(), lease.Member{}); err != nil {
		t.Fatal(err)
	}
	if err := w.job.Part.Lease.End(t.Context()); err != nil { // the end cannot be stored
		t.Fatal(err)
	}
	w.job.Message = &ingest.Job{}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	w.heed(t.Context(), stopped, &poll{job: w.job}, w.Terms, answer{httpcall.Response{Status: http.StatusOK}, httpcall.OperationDone, ""})
	if w.job.IsPolled() || len(w.agenda.waiting) != 0 {
		t.Errorf("the job is polled: %v, %d wait", w.job.IsPolled(), len(w.agenda.waiting))
	}
}

// TestOperationOfAnotherOwner checks that a replica which may not call any more holds no slot for an operation: the next
// owner may have ended it. It forgets the operation with the partition.
func TestOperationOfAnotherOwner(t *testing.T) {
	w := newPolling(t, time.Hour)
	w.again(&poll{job: w.job}, time.Second)
	if len(w.uses) != 1 || w.uses[0].Hold < time.Hour {
		t.Fatalf("the owner reports %+v", w.uses)
	}
	w.job.Part.Lost.Store(true)
	w.again(&poll{job: w.job}, time.Second)
	if len(w.uses) != 1 {
		t.Errorf("the former owner reports %+v", w.uses[1:])
	}
	w.agenda.waiting = nil
	w.Sched.Forget(w.job.Queue)
	if w.again(&poll{job: w.job}, time.Second); len(w.uses) != 1 || len(w.agenda.waiting) != 0 {
		t.Errorf("the former owner goes on polling: %+v", w.uses[1:])
	}
}

// TestNoEndForANextOwner checks that an answer that comes while the job's partition is given up, or was lost, does not
// end the job. The next owner polls its operation. A replica that gives a partition up does not wait for an end that
// begins so late, and the partition may be another replica's before the end is stored.
func TestNoEndForANextOwner(t *testing.T) {
	for what, leave := range map[string]func(*lane.Owned){
		"closing": func(p *lane.Owned) { p.Closing = true }, "lost": func(p *lane.Owned) { p.Lost.Store(true) },
	} {
		w := newPolling(t, time.Hour)
		if leave(w.job.Part); w.take(w.job) || !w.job.IsPolled() {
			t.Errorf("%s: the job is ended", what)
		}
	}
}

// TestLongRestEndsInTime checks that an api that asks weir to wait long does not keep an operation beyond its time.
func TestLongRestEndsInTime(t *testing.T) {
	w := newPolling(t, time.Minute)
	w.again(&poll{job: w.job}, 10*time.Hour)
	if due := w.agenda.waiting[0].due; w.Now().Until(due) > time.Minute {
		t.Errorf("the next poll comes in %v", w.Now().Until(due))
	}
}
