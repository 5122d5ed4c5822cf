package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"
	"weir/ingest/await"
)

// asked is a Forecaster that notes what it is asked about full buckets.
type asked chan []Appointment

func (asked) ETA(p Place) bucket.Micros                              { return p.NotBefore }
func (asked) Soonest(p Place) bucket.Micros                          { return p.NotBefore }
func (asked) Position(string, uint64) (int, bucket.Micros)           { return 0, 0 }
func (asked) Behind(string, int, bucket.Micros, ingest.Priority) int { return 0 }

// NextFree implements Forecaster.
func (a asked) NextFree(_ string, unread []Appointment) bucket.Micros {
	a <- unread
	return bucket.MicrosOf(time.Now().Add(time.Hour))
}

// TestUnreadAppointments checks that the owner of a full bucket learns of the bucket's jobs that must not be called yet
// and that the owner has not received, however far it has read.
func TestUnreadAppointments(t *testing.T) {
	p := newTestPartition(t)
	const capacity = 4
	limits := bucket.KeyLimits{Capacity: capacity, Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}}
	if err := p.queue.SetRules(bucket.Rules{Key: limits}); err != nil {
		t.Fatal(err)
	}
	forecaster := make(asked, 1)
	p.queue.SetForecaster(forecaster)
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	taking, takeOne, caughtUp, ended := make(chan uint64), make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() { ended <- p.queue.Run(ctx) }()
	go func() {
		ended <- p.Read(ctx, ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Bodies: func() bool { return true }, Damaged: func() {},
			CaughtUp: func() { close(caughtUp) }, Stalled: func(error) {},
			Take: func(e Entry) {
				select {
				case taking <- e.Seq:
				case <-ctx.Done():
					return
				}
				<-takeOne
			},
		})
	}()
	await.Receive(t, "the reader to catch up", caughtUp)
	due := time.Now().Add(time.Hour).UTC()
	put := func(id string, notBefore time.Time) (seq uint64, refusal *ingest.Refusal) {
		h := map[string][]string{}
		if !notBefore.IsZero() {
			h[ingest.HeaderNotBefore] = []string{notBefore.Format(time.RFC3339Nano)}
		}
		job := &ingest.Job{API: "pay", Key: "k", ID: id, DedupeID: id, Header: h, NotBefore: notBefore}
		type answer struct {
			ingest.Receipt
			*ingest.Refusal
		}
		answers := make(chan answer, 1)
		p.queue.Put(job, func(r ingest.Receipt, no *ingest.Refusal) { answers <- answer{r, no} })
		a := await.Receive(t, "the answer to "+id, answers)
		return a.Seq, a.Refusal
	}
	var stored []uint64
	for n := range capacity {
		at := due.Add(-time.Duration(n) * time.Minute)
		if n == 1 {
			at = time.Time{}
		}
		seq, no := put(fmt.Sprint("job-", n), at)
		if no != nil {
			t.Fatal(no)
		}
		stored = append(stored, seq)
	}
	for n, seq := range stored {
		if got := await.Receive(t, "the reader to pass a job on", taking); got != seq {
			t.Fatalf("job %d is passed on, not %d", got, seq)
		}
		// The reader is about to pass job n on: the owner has not received it.
		var want []Appointment
		for later, seq := range stored {
			if later >= n && later != 1 {
				want = append(want, Appointment{seq, bucket.MicrosOf(due.Add(-time.Duration(later) * time.Minute))})
			}
		}
		if _, no := put(fmt.Sprint("refused-", n), time.Time{}); no == nil || no.Code != ingest.Throttled {
			t.Fatalf("job %d beyond the capacity: %v", n, no)
		}
		if got := await.Receive(t, "the question", forecaster); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the owner that lacks job %d is told of %v, not of %v", n, got, want)
		}
		takeOne <- struct{}{}
	}
	await.Until(t, "all to be got", func() bool {
		p.contents.mu.Lock()
		defer p.contents.mu.Unlock()
		return len(p.contents.appointments.unread) == 0
	})
	cancel()
	for range 2 {
		if err := await.Receive(t, "the end of the queue", ended); err != nil {
			t.Error(err)
		}
	}
}

// TestAppointmentReadBeforeItsAnswer checks that an appointment is not kept if the owner has received it before the
// stream answers its intake, or if it was deleted by hand.
func TestAppointmentReadBeforeItsAnswer(t *testing.T) {
	a := newAppointments()
	a.got("k", 7)
	a.store("k", Appointment{Seq: 7})
	a.store("k", Appointment{Seq: 9})
	a.store("k", Appointment{Seq: 8}) // another intake's answer comes late
	a.store("other", Appointment{Seq: 10})
	a.got("k", 8)
	if got := fmt.Sprint(a.unread); got != "map[k:[{9 0}] other:[{10 0}]]" {
		t.Errorf("kept: %s", got)
	}
	a.remove("k", func(one Appointment) bool { return one.Seq == 9 })
	a.got("other", 10)
	if len(a.unread) != 0 {
		t.Errorf("kept: %v", a.unread)
	}
}
