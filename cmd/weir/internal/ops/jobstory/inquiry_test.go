package jobstory

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// record returns a record of the only job of these tests, a time after the test began.
func (p *past) record(after time.Duration, outcome, price string, billed deadletter.Billed) ledger.Record {
	return ledger.Record{
		API: "pay", Key: "k", Job: "job-1", Stream: "WEIR_pay_0", Seq: 1, Call: 1, Accepted: p.began, Sent: true, Outcome: outcome,
		Started: p.began.Add(after), Ended: p.began.Add(after + time.Millisecond), Price: price, Billed: billed,
	}
}

// inquiry returns the record of an inquiry about that job's call.
func (p *past) inquiry(after time.Duration, found httpcall.Finding, billed deadletter.Billed) ledger.Record {
	c := p.record(after, ledger.Asked, "0.00", billed)
	c.Inquiry, c.Final, c.Status, c.Detail = string(found), true, 200, "asked, the api answered 200"
	return c
}

// both calls check with the story by the index, and with the story by a search of the streams.
func (p *past) both(check func(by string, j *Job)) {
	p.t.Helper()
	p.serve()
	c := &connect.Connection{Conn: p.asks.Conn(), JetStream: p.asks, At: "the test's server", Denied: &connect.Denials{}}
	for by, search := range map[string]bool{"the index": false, "a search": true} {
		story, err := Find(p.t.Context(), c, Options{Job: "job-1", Scan: UsualScan, Search: search})
		if err != nil || len(story.Jobs) != 1 {
			p.t.Fatalf("by %s: %+v, %v", by, story, err)
		}
		check(by, story.Jobs[0])
	}
}

func kindsOf(j *Job) (kinds []StepKind) {
	for i := range j.Steps {
		kinds = append(kinds, j.Steps[i].What)
	}
	return kinds
}

// TestStoryOfAnInquiry checks that inquiries about a call do not hide the call, its price and one another, and that
// the result that they found is told once.
func TestStoryOfAnInquiry(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	call := p.record(time.Second, string(deadletter.Unknown), "1.20", deadletter.BilledUnknown)
	call.Final = true
	first := p.inquiry(2*time.Second, httpcall.StillUnknown, deadletter.BilledUnknown)
	second := p.inquiry(3*time.Second, httpcall.Processed, deadletter.BilledYes)
	for _, c := range []*ledger.Record{&call, &first, &second} {
		p.put(c.Message())
	}
	p.put(&nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{
		ingest.HeaderMsgID: {ledger.FoundPrefix + ledger.OriginOf("WEIR_pay_0", 1, bucket.MicrosOf(p.began))}, ingest.HeaderJobID: {"job-1"},
		ledger.HeaderOutcome: {ledger.Done}, ledger.HeaderStatus: {"200"}, ledger.HeaderAcceptedAt: {ledger.Stamp(p.began)},
	}})
	p.both(func(by string, j *Job) {
		kinds := kindsOf(j)
		slices.Sort(kinds)
		if want := []StepKind{Accepted, Called, Asked, Asked, Result}; !slices.Equal(kinds, want) || j.State != Done {
			t.Errorf("by %s the job is %s with the steps %v, want %v", by, j.State, kinds, want)
		}
		if j.Spent != "1.20" || j.Doubt != "0.00" {
			t.Errorf("by %s it spent %s, and %s in doubt", by, j.Spent, j.Doubt)
		}
		for _, s := range j.Steps {
			if s.What == Asked && (!strings.HasPrefix(s.Text, "inquiry about call 1: ") || strings.Contains(s.Text, "it had waited") || s.WaitedMS != 0) {
				t.Errorf("by %s an inquiry is told as %q", by, s.Text)
			}
			if s.What == Called && !strings.HasPrefix(s.Text, "call 1: no answer") {
				t.Errorf("by %s the call is told as %q", by, s.Text)
			}
		}
	})
}

// TestStoryOfAnUnprocessedCall checks that a call which the API did not process is not in doubt any more.
func TestStoryOfAnUnprocessedCall(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	call := p.record(time.Second, string(deadletter.Unknown), "1.20", deadletter.BilledUnknown)
	first := p.inquiry(2*time.Second, httpcall.StillUnknown, deadletter.BilledUnknown)
	second := p.inquiry(3*time.Second, httpcall.NotProcessed, deadletter.NotBilled)
	again := p.record(4*time.Second, ledger.Done, "0.70", deadletter.BilledYes)
	again.Seq, again.Accepted, again.Final = 2, p.began.Add(3500*time.Millisecond), true // it was redriven
	for _, c := range []*ledger.Record{&call, &first, &second, &again} {
		p.put(c.Message())
	}
	p.both(func(by string, j *Job) {
		if j.Spent != "0.70" || j.Doubt != "0.00" || j.State != Done {
			t.Errorf("by %s the job is %s and spent %s, and %s in doubt", by, j.State, j.Spent, j.Doubt)
		}
	})
}

// TestStoryOfAnOperationAskedAbout checks that inquiries about an operation, and the end of the operation, hide neither
// the call nor one another. It also checks that only the call has waited.
func TestStoryOfAnOperationAskedAbout(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	op := &queue.Operation{Address: "http://api/o/1", Price: 800_000}
	call := p.record(time.Second, ledger.Submitted, "0.80", deadletter.BilledYes)
	call.Status, call.Operation = 202, op
	end := p.record(9*time.Second, string(deadletter.Unknown), "0.00", deadletter.BilledYes)
	end.Polled, end.Operation, end.Final, end.Status = true, op, true, 404
	first := p.inquiry(10*time.Second, httpcall.OperationRunning, deadletter.BilledYes)
	second := p.inquiry(11*time.Second, httpcall.StillUnknown, deadletter.BilledYes)
	first.Polled, second.Polled = true, true
	for _, c := range []*ledger.Record{&call, &end, &first, &second} {
		p.put(c.Message())
	}
	p.both(func(by string, j *Job) {
		if kinds, want := kindsOf(j), []StepKind{Accepted, Called, Polled, Asked, Asked}; !slices.Equal(kinds, want) {
			t.Fatalf("by %s the job has the steps %v, want %v", by, kinds, want)
		}
		if j.Spent != "0.80" || j.Doubt != "0.00" {
			t.Errorf("by %s it spent %s, and %s in doubt", by, j.Spent, j.Doubt)
		}
		for i, want := range []string{
			"accepted", "call 1 answered 202", "the operation of call 1 was polled and answered 404",
			"inquiry about the operation of call 1: running", "inquiry about the operation of call 1: unknown",
		} {
			s := &j.Steps[i]
			if !strings.HasPrefix(s.Text, want) || strings.Contains(s.Text, "it had waited") != (s.What == Called) {
				t.Errorf("by %s step %d is told as %q, want %q", by, i, s.Text, want)
			}
		}
	})
}

// TestOnlyCallsAreAhead checks that a story counts, as made during a job's wait, only calls: neither ends of
// operations, nor inquiries, nor reused answers, and a pack once.
func TestOnlyCallsAreAhead(t *testing.T) {
	t.Parallel()
	for by, indexed := range map[string]bool{"the index": true, "the ledger": false} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			p := newPast(t)
			seq := uint64(1)
			other := func(outcome string, change func(c *ledger.Record)) {
				t.Helper()
				seq++
				c := p.record(time.Duration(seq)*time.Second, outcome, "0.00", deadletter.BilledYes)
				c.Job, c.Seq = "other-"+outcome+c.Started.String(), seq
				change(&c)
				p.put(c.Message())
			}
			for place := range 50 {
				other(ledger.Done, func(c *ledger.Record) {
					c.Pack, c.Started = &queue.Pack{ID: "p", Place: place, Of: 50}, p.began.Add(time.Second)
				})
			}
			other(ledger.Submitted, func(*ledger.Record) {})
			other(ledger.Done, func(c *ledger.Record) { c.Polled = true })
			other(ledger.Asked, func(c *ledger.Record) { c.Inquiry = string(httpcall.StillUnknown) })
			other(ledger.Reused, func(c *ledger.Record) { c.Call, c.Sent = 0, false })
			own := p.record(time.Minute, ledger.Done, "0.00", deadletter.BilledYes)
			p.put(own.Message())
			if indexed {
				p.serve()
			}
			s := &search{Options: Options{Job: "job-1"}, isIndexed: indexed}
			s.c = &connect.Connection{Conn: p.asks.Conn(), JetStream: p.asks, At: "the test's server", Denied: &connect.Denials{}}
			w := jobindex.Wait{API: "pay", Key: "k", Job: "job-1", Seq: seq, Accepted: p.began, Started: own.Started}
			if n, err := s.ahead(t.Context(), []jobindex.Wait{w}); err != nil || n[0] != 2 {
				t.Errorf("%v calls began while the job waited, want a pack and a call: %v", n, err)
			}
		})
	}
}
