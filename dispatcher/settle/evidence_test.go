package settle

import (
	"testing"

	"weir/dispatcher/ledger"
)

// TestAnswerOfAnotherJob checks that a letter never gets an answer from another job's record that has the sequence of
// the job's own record.
func TestAnswerOfAnotherJob(t *testing.T) {
	w, p := newOwned(t)
	of := ledger.Job{API: "pay", Key: "k", ID: "j", Stream: p.Bucket.Name(), Seq: 1}
	for _, mine := range []bool{true, false} {
		c := ledger.Record{API: "pay", Key: "k", Job: "j", Stream: of.Stream, Seq: of.Seq, Call: 1, Status: 400, Outcome: "rejected", Final: true}
		if !mine {
			c.Seq = 2
		}
		ack, err := w.Env.JS.PublishMsg(t.Context(), c.Message())
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := w.settler.Evidence.answer(t.Context(), of, ack.Sequence); !ok || (a != nil) != mine {
			t.Errorf("mine %v: the answer is %+v: %v", mine, a, ok)
		}
	}
}
