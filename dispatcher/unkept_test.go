package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestResultBesideARecord: where a record does not prove that its result is stored, the result is found that is the job's, also where the
// ledger has let go of the record. A result of another job that had the same place is none.
func TestResultBesideARecord(t *testing.T) {
	w, p := newOwned(t)
	d := w.d
	of := func(seq uint64) *job {
		return &job{
			Job: &schedule.Job{Seq: seq, Queue: &schedule.KeyQueue{Key: "k"}}, part: p, accepted: bucket.MicrosOf(time.Now()),
			message: &ingest.Job{API: "pay", Key: "k", ID: "j"},
		}
	}
	keep := func(j *job, accepted bucket.Micros) uint64 {
		ack, err := d.opts.JetStream.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{
			ingest.HeaderMsgID: {"result." + ledger.OriginOf(p.bucket.Name(), j.Seq, accepted)}, ingest.HeaderJobID: {"j"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	record := func(j *job) uint64 {
		c := ledger.Record{API: "pay", Key: "k", Job: "j", Stream: p.bucket.Name(), Seq: j.Seq, Call: 1, Accepted: j.accepted.Time(), Status: 200, Outcome: ledger.Done, Final: true, Beside: true}
		ack, err := d.opts.JetStream.PublishMsg(t.Context(), c.Message())
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	both, alone, other := of(1), of(2), of(3)
	stands := keep(both, both.accepted)
	keep(other, other.accepted.Add(-time.Hour))
	for _, c := range []struct {
		what   string
		j      *job
		record uint64
		at     uint64
	}{
		{"a record and its result", both, record(both), stands},
		{"a result, and a record that is gone", both, 1 << 40, stands},
		{"a record alone", alone, record(alone), 0},
		{"a record, and a result of the job before", other, record(other), 0},
	} {
		of, at, ok := w.evidence.resultBeside(t.Context(), w.evidence.of(c.j), ledger.LastCall{Call: 1, Status: 200, At: c.record})
		if !ok || at != c.at || of.Call != 1 || of.Status != 200 || of.Stored.IsZero() {
			t.Errorf("%s: the result stands at %d, want %d: %v %+v", c.what, at, c.at, ok, of)
		}
	}
}

// TestResultLongBeforeItsRecord: a ledger that takes nothing for a while has a record that is much later than its result. The result is
// found all the same, or its job would be called again.
func TestResultLongBeforeItsRecord(t *testing.T) {
	w, p := newOwned(t)
	w.evidence.leeway = time.Nanosecond // what the two are apart here is more
	accepted := time.Now()
	j := &job{
		Job: &schedule.Job{Seq: 1, Queue: &schedule.KeyQueue{Key: "k"}}, part: p, accepted: bucket.MicrosOf(accepted), message: &ingest.Job{API: "pay", Key: "k", ID: "j"},
	}
	stands, err := w.d.opts.JetStream.PublishMsg(t.Context(), &nats.Msg{
		Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{ingest.HeaderMsgID: {resultMsgID(j)}, ingest.HeaderJobID: {"j"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := ledger.Record{
		API: "pay", Key: "k", Job: "j", Stream: p.bucket.Name(), Seq: 1, Call: 1, Accepted: j.accepted.Time(), Ended: accepted, Status: 200, Outcome: ledger.Done, Final: true, Beside: true,
	}
	record, err := w.d.opts.JetStream.PublishMsg(t.Context(), c.Message())
	if err != nil {
		t.Fatal(err)
	}
	if _, at, ok := w.evidence.resultBeside(t.Context(), w.evidence.of(j), ledger.LastCall{Call: 1, Status: 200, At: record.Sequence}); !ok || at != stands.Sequence {
		t.Errorf("the result stands at %d, want %d: %v", at, stands.Sequence, ok)
	}
}
