package main

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// send submits a job and requires that it is taken.
func (r *rig) send(api, key string, h nats.Header, body string) {
	r.t.Helper()
	reply, err := r.nc.RequestMsg(&nats.Msg{Subject: "weir.jobs." + api + "." + key, Header: h, Data: []byte(body)}, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	var receipt struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err := json.Unmarshal(reply.Data, &receipt); err != nil || receipt.Error != nil || receipt.Seq == 0 {
		r.t.Fatalf("not taken: %s", reply.Data)
	}
}

// stored reads the messages of a stream under a subject, in order.
func (r *rig) stored(stream, subject string) []*jetstream.RawStreamMsg {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	var msgs []*jetstream.RawStreamMsg
	for seq := uint64(1); ; {
		msg, err := s.GetMsg(r.t.Context(), seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return msgs
		} else if err != nil {
			r.t.Fatal(err)
		}
		msgs, seq = append(msgs, msg), msg.Sequence+1
	}
}

func (r *rig) results(api, key string) []*jetstream.RawStreamMsg {
	r.t.Helper()
	return r.stored(ledger.ResultsStream, "weir.results."+api+"."+key)
}

func (r *rig) letters(api, key string) []*jetstream.RawStreamMsg {
	r.t.Helper()
	return r.stored("WEIR_DEAD", "weir.dead."+api+".*."+key)
}

// ledger is what weir wrote down of the calls of a key.
func (r *rig) ledger(api, key string) []ledger.Record {
	r.t.Helper()
	var records []ledger.Record
	for _, msg := range r.stored(ledger.CallsStream, "weir.calls."+api+"."+key) {
		var c ledger.Record
		if err := json.Unmarshal(msg.Data, &c); err != nil {
			r.t.Fatal(err)
		}
		records = append(records, c)
	}
	return records
}

// ended waits until n jobs of a key have ended and the queue is empty of them.
func (r *rig) ended(api, key string, n int) {
	r.t.Helper()
	r.eventually("the end of the jobs of "+api+"/"+key, func() bool {
		return len(r.results(api, key))+len(r.letters(api, key)) >= n && r.depth(api, key) == 0
	})
}

// depth is how many jobs of a key are unfinished.
func (r *rig) depth(api, key string) int {
	n := 0
	for p := range 4 {
		n += len(r.stored(queue.StreamName(api, p), queueName(api, p, "j", key)))
	}
	return n
}

// end is how a job should end, and what should be told of it.
type end struct {
	as       string // done or a letter's reason
	status   int
	attempts int
	billed   deadletter.Billed
	ledger   []string // the outcomes of its calls
}

// checkEnd holds what became of the only job of a key against what should have.
func (r *rig) checkEnd(t *testing.T, api, key, id, body string, want end) {
	t.Helper()
	r.ended(api, key, 1)
	results, letters, ledger := r.results(api, key), r.letters(api, key), r.ledger(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters of one job", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	if len(results) == 1 {
		if n := number(t, results[0].Header, "Weir-Calls"); n != len(ledger) || results[0].Header.Get("Weir-Job-Id") != id {
			t.Errorf("job %s, %d calls of %d: %v", id, n, len(ledger), results[0].Header)
		}
	} else if h := letters[0].Header; string(letters[0].Data) != body || h.Get("Weir-Job-Id") != id || h.Get("Weir-Dead-Detail") == "" {
		t.Errorf("a letter of job %s with the body %q: %v", id, letters[0].Data, h)
	}
	for i, c := range ledger {
		got.ledger = append(got.ledger, c.Outcome)
		if c.Call != i+1 || c.Job != id || c.Final != (i == len(ledger)-1) || c.Price != "0.25" || c.Planned.IsZero() ||
			c.Started.Before(c.Planned.Add(-time.Microsecond)) || c.Ended.Before(c.Started) {
			t.Errorf("record %d does not make sense: %+v", i+1, c)
		}
	}
	if !sameEnd(got, want) {
		t.Errorf("ended as %+v, want %+v", got, want)
	}
}

// endIn reads the one end of a job, but for its ledger.
func endIn(t *testing.T, results, letters []*jetstream.RawStreamMsg) end {
	t.Helper()
	if len(results) > 0 {
		h := results[0].Header
		return end{as: h.Get("Weir-Outcome"), status: number(t, h, "Weir-Status"), attempts: number(t, h, "Weir-Attempts")}
	}
	h := letters[0].Header
	return end{
		as: h.Get("Weir-Dead-Reason"), status: number(t, h, "Weir-Dead-Status"), attempts: number(t, h, "Weir-Dead-Attempts"),
		billed: deadletter.Billed(h.Get("Weir-Dead-Billed")),
	}
}
