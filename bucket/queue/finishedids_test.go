package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
	"weir/bucket"
	"weir/ingest"
)

// TestFinishedIDs compares the finished jobs that a partition knows with a plain map. The newest job of each id must be
// known for as long as it may matter.
func TestFinishedIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x finishedIDs
		model, now := map[string]finishedID{}, bucket.Micros(1<<40)
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			since := now.Add(-10 * time.Second)
			id := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))
			if rapid.Bool().Draw(t, "add") {
				e := finishedID{uint64(step), now.Add(time.Duration(rapid.IntRange(-15, 0).Draw(t, "s")) * time.Second), false}
				x.add(id, e, since)
				if old, ok := model[id]; e.accepted > since && (!ok || old.accepted <= e.accepted) {
					model[id] = e
				}
			}
			want, known := model[id]
			got, ok := x.find(id)
			if matters := known && want.accepted > since; matters && (!ok || got != want) || ok && (!known || got != want) {
				t.Fatalf("%s at %d: got %v %v, want %v %v", id, now, got, ok, want, known)
			}
		}
	})
}

// TestFinishedIDsForgottenEarly checks that it is reported if there is no room for an id that still matters, and not if
// the id no longer matters.
func TestFinishedIDsForgottenEarly(t *testing.T) {
	for _, tt := range []struct {
		jobs   int
		pause  time.Duration
		forgot bool
	}{{5, 0, false}, {9, 0, true}, {100, time.Second, false}} {
		x, now := finishedIDs{sure: 4}, bucket.Micros(1<<40)
		for i := range tt.jobs {
			x.add(fmt.Sprint(i), finishedID{uint64(i), now, false}, now.Add(-2*time.Second))
			if _, known := x.find(fmt.Sprint(i)); !known {
				t.Errorf("%+v: job %d is not known", tt, i)
			}
			now = now.Add(tt.pause)
		}
		if x.forgot != tt.forgot {
			t.Errorf("%+v: ids were forgotten before their time: %v", tt, x.forgot)
		}
	}
}

// TestFinishedIDIsKnownForDedupe checks that the id of an ended job is known for as long as dedupe says, and no longer.
// A later job with the id is then another job.
func TestFinishedIDIsKnownForDedupe(t *testing.T) {
	for ago, known := range map[time.Duration]bool{30 * time.Second: true, 2 * time.Minute: false} {
		p := newDesk().p
		p.queue.dedupe = NewDedupe(time.Minute)
		accepted := bucket.MicrosOf(time.Now().Add(-ago))
		p.finishedIDs.add(ingest.StoredID("k", "one"), finishedID{seq: 7, accepted: accepted}, 0)
		var got ingest.Receipt
		job := &ingest.Job{API: "credit", Key: "k", ID: "one", DedupeID: "one"}
		p.intake.put(job, bucket.KeyLimits{Capacity: 10}, nil, func(r ingest.Receipt, _ *ingest.Refusal) { got = r })
		if got.Duplicate != known || known != (len(p.intake.waiting) == 0) {
			t.Errorf("%s after the first was accepted: %+v, and %d jobs are on their way", ago, got, len(p.intake.waiting))
		}
	}
}

// TestJobThatCameBack checks that an ended job that is in its stream again is the same job, whenever it ended: its
// server has lost the deletion. A waiting job whose id the server has forgotten is not taken for an ended job.
func TestJobThatCameBack(t *testing.T) {
	p := newDesk().p
	p.queue.dedupe = NewDedupe(0) // ids are known for no time at all
	accepted := time.UnixMicro(1_700_000_000_000_000)
	p.finishedIDs.add(ingest.StoredID("k", "ended"), finishedID{seq: 7, accepted: bucket.MicrosOf(accepted)}, 0)
	p.finishedIDs.add(ingest.StoredID("k", "waits"), finishedID{seq: 8, accepted: bucket.MicrosOf(accepted), waits: true}, 0)
	for _, c := range []struct {
		id   string
		seq  uint64
		came time.Duration
		want Likeness
	}{
		{"ended", 7, 0, Same},
		{"ended", 7, time.Hour, Another},
		{"ended", 9, time.Hour, Another},
		{"waits", 8, 0, Another},
		{"never", 7, 0, Another},
	} {
		e := Entry{Seq: c.seq, Key: "k", Time: accepted.Add(c.came), Header: nats.Header{ingest.HeaderMsgID: {ingest.StoredID("k", c.id)}}}
		if got := p.Duplicate(e); got != c.want {
			t.Errorf("%s at %d, %s later, is %d, want %d", c.id, c.seq, c.came, got, c.want)
		}
	}
}

// TestWaitingPutsAreBounded checks that a partition whose stream does not answer accepts no more jobs than it has room
// for.
func TestWaitingPutsAreBounded(t *testing.T) {
	p := newDesk().p
	p.intake.waiting = make([]*pendingPut, maxIntake)
	var got *ingest.Refusal
	job := &ingest.Job{API: "credit", Key: "k", ID: "one", DedupeID: "one"}
	p.intake.put(job, bucket.KeyLimits{Capacity: 10}, nil, func(_ ingest.Receipt, r *ingest.Refusal) { got = r })
	if got == nil || got.Code != ingest.Unavailable || len(p.intake.waiting) != maxIntake {
		t.Errorf("%+v, and %d wait", got, len(p.intake.waiting))
	}
}
