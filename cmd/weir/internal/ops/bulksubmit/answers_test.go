package bulksubmit

import (
	"errors"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// underWay returns a delivery with jobs under way, whose batch has the number 1.
func underWay(ids ...string) *delivery {
	d := &delivery{
		Options: Options{Report: func(Outcome) error { return nil }, Remembered: time.Hour},
		tally:   Tally{Ended: map[Verdict]int{}}, open: map[int]*sending{}, flights: map[int][]*sending{},
	}
	for i, id := range ids {
		s := &sending{
			line: i + 1, api: "a", job: ingest.Submission{API: "a", Key: id, ID: id}, bucket: &bucket{at: -1, inFlight: 1},
			first: time.Now(), tries: 1, flies: true, flight: 1,
		}
		d.open[s.line] = s
		d.flights[1] = append(d.flights[1], s)
		d.flying++
	}
	return d
}

// TestReceiptsBehindTrouble checks that the receipts of a batch count, even if the first job of the batch has none and
// the run has had no useful answer for long.
func TestReceiptsBehindTrouble(t *testing.T) {
	t.Parallel()
	refusal := []byte(`{"error":{"code":503,"err_code":20503,"description":"try again"}}`)
	var said *ingest.Refusal
	if _, err := client.ParseAnswer(refusal); !errors.As(err, &said) || said.Code != ingest.Unavailable {
		t.Fatal(err)
	}
	for _, first := range [][]byte{nil, refusal} {
		d := underWay("1", "2")
		now := time.Now()
		d.trouble = now.Add(-2 * patience)
		data := client.JoinAnswers([][]byte{first, []byte(`{"stream":"WEIR_a_0","seq":1,"job":"2","key":"2","position":1}`)}, 1000)
		if err := d.hear(&nats.Msg{Subject: "_INBOX.x.1", Data: data}, now); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		if d.tally.Ended[Taken] != 1 || d.waiting != 1 || d.flying != 0 {
			t.Errorf("%s: %v, %d waiting, %d under way", data, d.tally.Ended, d.waiting, d.flying)
		}
	}
}

// TestNullIsAnAnswer checks that a run whose first answer is null does not end as one without a running weir would.
func TestNullIsAnAnswer(t *testing.T) {
	t.Parallel()
	d := underWay("1")
	if err := d.hear(&nats.Msg{Subject: "_INBOX.x.1", Data: client.JoinAnswers([][]byte{nil}, 1000)}, time.Now()); err != nil || d.waiting != 1 {
		t.Errorf("%v, %d waiting", err, d.waiting)
	}
}

// TestPublishBelowTheLimit checks that a job that is too large for the server, because the connection has gone to
// another, ends the run, and that no batch without jobs is published.
func TestPublishBelowTheLimit(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.StartWith(t, 1024)).Conn()
	d := underWay("1")
	d.Conn, d.inbox = nc, nc.NewRespInbox()
	sub, err := nc.SubscribeSync("weir.jobs.>")
	if err != nil {
		t.Fatal(err)
	}
	jobs := d.flights[1]
	jobs[0].msg = &nats.Msg{Subject: "weir.jobs.a.k", Data: make([]byte, 1024)}
	if n, err := d.publish("a", jobs); n != 0 || !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("%d jobs, %v", n, err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := sub.Pending(); n != 0 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
}

// TestForgottenIsNotSentAgain checks that a job that weir may have accepted is not sent again once weir may have
// forgotten its id: neither after its first try, nor when its bucket has room at last.
func TestForgottenIsNotSentAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name       string
		remembered time.Duration
		age        time.Duration
		want       Verdict
	}{
		{"young", 10 * time.Minute, answerAfter, ""},
		{"as old as weir's memory", 10 * time.Minute, 9 * time.Minute, Unsure},
		{"a memory shorter than the wait for an answer", 10 * time.Second, answerAfter, Unsure},
		{"an unknown memory", 0, answerAfter, Unsure},
	} {
		d := underWay("1")
		d.Remembered = c.remembered
		s := d.open[1]
		s.first, s.sentAt = now.Add(-c.age), now.Add(-answerAfter)
		if err := d.unheard(s, now, ErrSilent); c.want != "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want == "" && d.tally.Ended[Unsure] != 0 || c.want != "" && (d.tally.Ended[c.want] != 1 || d.waiting != 0) {
			t.Errorf("%s: %v, %d waiting", c.name, d.tally.Ended, d.waiting)
		}
	}
	for _, said := range []word{wordSent, wordTaken} {
		d := underWay("1")
		d.Remembered, d.useful = 10*time.Minute, true
		d.Journal = &Journal{last: map[[16]byte]entry{}}
		s := d.open[1]
		s.first = now.Add(-time.Minute)
		d.Journal.last[s.id] = entry{said, s.first}
		if err := d.unheard(s, now, ErrSilent); err != nil || d.waiting != 1 {
			t.Fatalf("%v, %d waiting", err, d.waiting)
		}
		if err := d.send(now.Add(9 * time.Minute)); err != nil { // it has no connection: to send would panic
			t.Fatal(err)
		}
		if want := map[word]Verdict{wordSent: Unsure, wordTaken: Before}[said]; d.tally.Ended[want] != 1 || d.waiting != 0 {
			t.Errorf("%s: %v, %d waiting", said, d.tally.Ended, d.waiting)
		}
	}
}
