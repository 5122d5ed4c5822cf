package weirtest

import (
	"encoding/json"
	"errors"
	"testing"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/serve/clock"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Send submits a job, and fails unless weir accepts it.
func (r *Rig) Send(api, key string, h nats.Header, body string) {
	r.T.Helper()
	reply, err := r.NC.RequestMsg(&nats.Msg{Subject: "weir.jobs." + api + "." + key, Header: h, Data: []byte(body)}, Patience)
	if err != nil {
		r.T.Fatal(err)
	}
	var receipt struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err := json.Unmarshal(reply.Data, &receipt); err != nil || receipt.Error != nil || receipt.Seq == 0 {
		r.T.Fatalf("not taken: %s", reply.Data)
	}
}

// Stored returns the messages of a stream under a subject, oldest first.
func (r *Rig) Stored(stream, subject string) []*jetstream.RawStreamMsg {
	r.T.Helper()
	s, err := r.JS.Stream(r.T.Context(), stream)
	if err != nil {
		r.T.Fatal(err)
	}
	var msgs []*jetstream.RawStreamMsg
	for seq := uint64(1); ; {
		msg, err := s.GetMsg(r.T.Context(), seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return msgs
		} else if err != nil {
			r.T.Fatal(err)
		}
		msgs, seq = append(msgs, msg), msg.Sequence+1
	}
}

func (r *Rig) Results(api, key string) []*jetstream.RawStreamMsg {
	r.T.Helper()
	return r.Stored(ledger.ResultsStream, "weir.results."+api+"."+key)
}

func (r *Rig) Letters(api, key string) []*jetstream.RawStreamMsg {
	r.T.Helper()
	return r.Stored("WEIR_DEAD", "weir.dead."+api+".*."+key)
}

// Ledger returns the records of a key's calls.
func (r *Rig) Ledger(api, key string) []ledger.Record {
	r.T.Helper()
	var records []ledger.Record
	for _, msg := range r.Stored(ledger.CallsStream, "weir.calls."+api+"."+key) {
		var c ledger.Record
		if err := json.Unmarshal(msg.Data, &c); err != nil {
			r.T.Fatal(err)
		}
		records = append(records, c)
	}
	return records
}

// Ended waits until at least n jobs of a key have ended and the key has no unfinished job.
func (r *Rig) Ended(api, key string, n int) {
	r.T.Helper()
	r.Eventually("the end of the jobs of "+api+"/"+key, func() bool {
		return len(r.Results(api, key))+len(r.Letters(api, key)) >= n && r.Depth(api, key) == 0
	})
}

// Depth returns how many jobs of a key are unfinished.
func (r *Rig) Depth(api, key string) int {
	n := 0
	for p := range 4 {
		n += len(r.Stored(queue.StreamName(api, p), QueueName(api, p, "j", key)))
	}
	return n
}

// End is the expected end of a job, as weir reports it.
type End struct {
	As       string // done, or a letter's reason
	Status   int
	Attempts int
	Billed   deadletter.Billed
	Ledger   []string // outcomes of its calls
}

// apart is the largest difference between two times of one call that come from different clocks. The slot comes from
// the schedule's clock, and the start from the machine's.
var apart = bucket.Micros(0).Until(clock.Noise)

// CheckEnd waits for the end of a key's only job, and compares it with want.
func (r *Rig) CheckEnd(t *testing.T, api, key, id, body string, want End) {
	t.Helper()
	r.Ended(api, key, 1)
	results, letters, ledger := r.Results(api, key), r.Letters(api, key), r.Ledger(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters of one job", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	if len(results) == 1 {
		if n := Number(t, results[0].Header, "Weir-Calls"); n != len(ledger) || results[0].Header.Get("Weir-Job-Id") != id {
			t.Errorf("job %s, %d calls of %d: %v", id, n, len(ledger), results[0].Header)
		}
	} else if h := letters[0].Header; string(letters[0].Data) != body || h.Get("Weir-Job-Id") != id || h.Get("Weir-Dead-Detail") == "" {
		t.Errorf("a letter of job %s with the body %q: %v", id, letters[0].Data, h)
	}
	for i, c := range ledger {
		got.Ledger = append(got.Ledger, c.Outcome)
		if c.Call != i+1 || c.Job != id || c.Final != (i == len(ledger)-1) || c.Price != "0.25" || c.Planned.IsZero() ||
			c.Started.Before(c.Planned.Add(-apart)) || c.Ended.Before(c.Started) {
			t.Errorf("record %d does not make sense: %+v", i+1, c)
		}
	}
	if !sameEnd(got, want) {
		t.Errorf("ended as %+v, want %+v", got, want)
	}
}

// endIn returns the only end in results and letters, without the outcomes in the ledger.
func endIn(t *testing.T, results, letters []*jetstream.RawStreamMsg) End {
	t.Helper()
	if len(results) > 0 {
		h := results[0].Header
		return End{As: h.Get("Weir-Outcome"), Status: Number(t, h, "Weir-Status"), Attempts: Number(t, h, "Weir-Attempts")}
	}
	h := letters[0].Header
	return End{
		As: h.Get("Weir-Dead-Reason"), Status: Number(t, h, "Weir-Dead-Status"), Attempts: Number(t, h, "Weir-Dead-Attempts"),
		Billed: deadletter.Billed(h.Get("Weir-Dead-Billed")),
	}
}
