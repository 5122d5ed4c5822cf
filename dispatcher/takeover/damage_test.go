package takeover

import (
	"testing"

	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/ingest/await"
)

// TestIntentsOfLostJobsStay checks that the intents of jobs that were not read stay stored until the losses are
// reported. A start after a kill in between needs them.
func TestIntentsOfLostJobsStay(t *testing.T) {
	w, p, _ := removalRig(t)
	r := newReplay()
	p.reader.replay = r
	r.of(7).intents = []lane.FoundIntent{{Intent: queue.Intent{Seq: 7, Call: 1}, Mark: &lane.IntentMark{Seq: 5, Users: 1}}}
	begun, discard := p.reader.begun(), p.reader.keepUnread()
	if !begun[7] {
		t.Error("the job has no intent")
	}
	p.reader.open(t.Context())
	if n := p.Bucket.Unswept(); n != 0 {
		t.Errorf("%d messages are to be deleted before the losses are reported", n)
	}
	p.losses.damaged(t.Context(), begun, discard)
	await.Return(t, "the report", w.Running.Wait)
	if n := p.Bucket.Unswept(); n != 1 {
		t.Errorf("%d messages are to be deleted, want the intent", n)
	}
}

// TestLostJobThatMayHaveBegun checks when a lost job is reported as not billed: only if it has no intent, or if its
// sequence is unknown and no missing job has one.
func TestLostJobThatMayHaveBegun(t *testing.T) {
	begun := map[uint64]bool{3: true, 4: false}
	for seq, want := range map[uint64]bool{3: true, 4: false, 5: false, 0: true} {
		if got := mayHaveBegun(seq, begun); got != want {
			t.Errorf("job %d: %v, want %v", seq, got, want)
		}
	}
	if mayHaveBegun(0, map[uint64]bool{4: false}) {
		t.Error("a job is taken for begun though no intent tells so")
	}
}
