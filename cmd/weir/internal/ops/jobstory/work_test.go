package jobstory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// past is a server with the traces of ended jobs, and a replica that has indexed them.
type past struct {
	t     *testing.T
	js    jetstream.JetStream // of the replica
	asks  jetstream.JetStream // of the searches
	began time.Time
	// inQueue answers in place of the queues' owners; nil: no job waits.
	inQueue func(context.Context, string, admin.JobInQueue) ([]desk.QueuedJob, error)
	watch   *nats.Conn
	slow    *nats.Subscription // of watch; counts the requests that wait behind deletions of finished jobs
}

func newPast(t *testing.T) *past {
	t.Helper()
	ns := natstest.Start(t, t.TempDir(), 0)
	p := &past{t: t, js: natstest.Connect(t, ns), asks: natstest.Connect(t, ns), began: time.Now().UTC()}
	for name, subjects := range map[string]string{
		ledger.CallsStream: ledger.CallSubjects.Below(), ledger.ResultsStream: ledger.ResultSubjects.Below(),
		deadletter.Stream: deadletter.Subjects.Below(), deadletter.EventsStream: "weir.events.>",
	} {
		if _, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subjects}, AllowDirect: true}); err != nil {
			t.Fatal(err)
		}
	}
	p.watch = natstest.Connect(t, ns).Conn()
	var err error
	if p.slow, err = p.watch.SubscribeSync("$JS.API.STREAM.MSG.GET.*"); err != nil {
		t.Fatal(err)
	}
	return p
}

// waits returns how many requests have waited in the JetStream API's queue so far.
func (p *past) waits() int {
	p.t.Helper()
	if err := p.watch.Flush(); err != nil { // the server has passed on what it answered before
		p.t.Fatal(err)
	}
	n, _, err := p.slow.Pending()
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *past) put(m *nats.Msg) uint64 {
	p.t.Helper()
	ack, err := p.js.PublishMsg(p.t.Context(), m)
	if err != nil {
		p.t.Fatal(err)
	}
	return ack.Sequence
}

// call stores the record of the only call of a job that waited since the beginning. By the caller's clock the call
// began ten minutes later, so that a slow machine still stores all records within the wait.
func (p *past) call(seq int, outcome string, result uint64) {
	c := ledger.Record{
		API: "pay", Key: "k", Job: fmt.Sprint("job-", seq), Stream: "WEIR_pay_0", Seq: uint64(seq), Call: 1, Accepted: p.began, //nolint:gosec // small
		Started: p.began.Add(10*time.Minute + time.Duration(seq)*time.Millisecond), Ended: time.Now().UTC(),
		Sent: true, Status: 200, Outcome: outcome, Final: true, Price: "0.00", Result: result,
	}
	p.put(c.Message())
}

// result stores the result of a job and returns its sequence.
func (p *past) result(seq int) uint64 {
	origin := ledger.OriginOf("WEIR_pay_0", uint64(seq), bucket.MicrosOf(p.began)) //nolint:gosec // small
	return p.put(&nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Data: []byte("{}"), Header: nats.Header{
		ingest.HeaderMsgID: {"result." + origin}, ingest.HeaderJobID: {fmt.Sprint("job-", seq)},
		ledger.HeaderOutcome: {ledger.Done}, ledger.HeaderStatus: {"200"}, ledger.HeaderAcceptedAt: {ledger.Stamp(p.began)},
	}})
}

// done ends a job with a result. named says whether the record names the result.
func (p *past) done(seq int, named bool) {
	at := p.result(seq)
	if !named {
		at = 0
	}
	p.call(seq, ledger.Done, at)
}

// dead ends a job with a letter and its event.
func (p *past) dead(seq int) {
	p.call(seq, string(deadletter.Rejected), 0)
	job := fmt.Sprint("job-", seq)
	l := deadletter.Letter{API: "pay", Key: "k", JobID: job, Origin: job, Reason: deadletter.Rejected, At: time.Now(), Header: nats.Header{ingest.HeaderJobID: {job}}}
	letter := p.put(l.Message())
	e := deadletter.Event{Type: deadletter.DeadEvent, API: "pay", Key: "k", Data: deadletter.DeadData{Job: job, Reason: deadletter.Rejected, DeadLetterSeq: letter}}
	if err := e.Publish(p.t.Context(), p.js); err != nil {
		p.t.Fatal(err)
	}
}

// serve runs a replica's index until the test ends. It returns when the index is whole.
func (p *past) serve() {
	p.t.Helper()
	x := jobindex.New(jobindex.Options{JetStream: p.js, Bytes: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	stop, err := admin.StartService(admin.ServiceOptions{Conn: p.js.Conn(), Index: x, Instance: "weir-0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		cancel()
		if err := await.Receive(p.t, "the end of the index", ended); err != nil {
			p.t.Error(err)
		}
		if err := stop(); err != nil {
			p.t.Error(err)
		}
	})
	await.Until(p.t, "the whole index", func() bool {
		traces := x.Traces(p.t.Context(), "none")
		return !traces.Doubtful && traces.InCalls.All() && traces.InLetters.All() && traces.HasEvents()
	})
}

// story returns the story of an id, the number of requests for it, and the number of messages in answer.
func (p *past) story(id string) (t *Timeline, asked, came uint64) {
	p.t.Helper()
	c := &connect.Connection{Conn: p.asks.Conn(), JetStream: p.asks, At: "the test's server", Denied: &connect.Denials{}}
	before := p.asks.Conn().Stats()
	inQueue := p.inQueue
	if inQueue == nil { // the owner finds the job without reading: see bucket/queue
		inQueue = func(context.Context, string, admin.JobInQueue) ([]desk.QueuedJob, error) { return nil, nil }
	}
	t, err := Find(p.t.Context(), c, Options{Job: id, APIs: []string{"pay"}, Scan: UsualScan, InQueue: inQueue})
	if err != nil {
		p.t.Fatal(err)
	}
	after := p.asks.Conn().Stats()
	return t, after.OutMsgs - before.OutMsgs, after.InMsgs - before.InMsgs
}

// TestStoryAsksLittle checks that a story takes a few requests with one answer each, however many other jobs of the key
// have ended. It also checks that the story has every step, and the number of calls that began during the wait.
func TestStoryAsksLittle(t *testing.T) {
	t.Parallel()
	const many, most = 450, 8
	p := newPast(t)
	for seq := 1; seq <= many; seq += 3 {
		p.done(seq, true)
		p.dead(seq + 1)
		p.done(seq+2, false)
	}
	p.serve()
	const first = 151
	for id, want := range map[string]struct {
		state State
		steps []StepKind
		most  uint64
		ahead int
	}{
		fmt.Sprint("job-", first):   {Done, []StepKind{Accepted, Called, Result}, most, first - 1},
		fmt.Sprint("job-", first+1): {Dead, []StepKind{Accepted, Called, Buried, Event}, most, first},
		fmt.Sprint("job-", first+2): {Done, []StepKind{Accepted, Called, Result}, many + most, first + 1}, // its record names no result
		"job-1":                     {Done, []StepKind{Accepted, Called, Result}, most, 0},
		fmt.Sprint("job-", many-2):  {Done, []StepKind{Accepted, Called, Result}, most, jobindex.MostAhead},
		"never":                     {"", nil, most, 0},
	} {
		var kinds []StepKind
		waited := p.waits()
		story, asked, came := p.story(id)
		if n := p.waits() - waited; n > 0 && want.most == most {
			t.Errorf("for the story of %s %d requests waited for JetStream's API", id, n)
		}
		if asked > want.most || came > asked {
			t.Errorf("the story of %s took %d requests with %d answers", id, asked, came)
		}
		if want.steps == nil {
			if len(story.Jobs) != 0 || len(story.Looked) != 3 || !story.Looked[2].All {
				t.Errorf("%s: %+v, looked at %+v", id, story.Jobs, story.Looked)
			}
			continue
		}
		if len(story.Jobs) != 1 || story.Jobs[0].State != want.state || len(story.Looked) != 2 {
			t.Fatalf("%s: %+v, looked at %+v", id, story.Jobs, story.Looked)
		}
		want.steps = slices.Sorted(slices.Values(want.steps))
		for _, s := range story.Jobs[0].Steps {
			kinds = append(kinds, s.What)
			if s.What == Called && (s.Ahead != want.ahead || s.WaitedMS < 1000 || !strings.Contains(s.Text, aheadText(want.ahead))) {
				t.Errorf("%s: %d calls began while it waited %d ms: %s", id, s.Ahead, s.WaitedMS, s.Text)
			}
		}
		if slices.Sort(kinds); !slices.Equal(kinds, want.steps) {
			t.Errorf("%s has the steps %v", id, kinds)
		}
	}
}

// TestStoryOfAJobThatIsRedriven checks that a story finds a job that is redriven after the queues were asked and before
// the letters are read.
func TestStoryOfAJobThatIsRedriven(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.dead(1)
	p.serve()
	letters, err := p.js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	p.inQueue = func(ctx context.Context, _ string, _ admin.JobInQueue) ([]desk.QueuedJob, error) {
		if asked++; asked == 1 {
			return nil, letters.DeleteMsg(ctx, 1)
		}
		return []desk.QueuedJob{{Key: "k", Seq: 2, Stream: "WEIR_pay_0", Accepted: time.Now()}}, nil
	}
	if story, _, _ := p.story("job-1"); len(story.Jobs) != 1 || story.Jobs[0].State != Queued || asked != 2 {
		t.Errorf("after %d questions: %+v", asked, story.Jobs)
	}
}
