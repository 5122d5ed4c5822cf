package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// CancelAnswer tells what became of one job.
type CancelAnswer struct {
	Key     string             `json:"key"`
	Seq     uint64             `json:"seq"`
	Verdict schedule.Cancelled `json:"verdict,omitempty"`
	Outcome string             `json:"outcome,omitempty"` // of a job that ended meanwhile: done, or a letter's reason
}

// Cancellation names a job that is not to be called. Key may be "": then the job of every key with this id is meant.
type Cancellation struct{ API, Key, Job, Why string }

// Cancel ends the unfinished jobs that c names and that are not being called, of the partitions owned here. It returns
// when their letters are stored, or ctx ends. It reads the headers of every waiting job, or of those of the key.
func (d *Dispatcher) Cancel(ctx context.Context, c Cancellation) ([]CancelAnswer, error) {
	answers := []CancelAnswer{}
	err := d.find(ctx, c, func(l *lane, e queue.Entry) error {
		a, err := l.cancel(ctx, e, c.Why)
		answers = append(answers, a)
		return err
	})
	return answers, err
}

// Find is Cancel without cancelling: its answers have no verdict.
func (d *Dispatcher) Find(ctx context.Context, c Cancellation) ([]CancelAnswer, error) {
	answers := []CancelAnswer{}
	err := d.find(ctx, c, func(_ *lane, e queue.Entry) error {
		answers = append(answers, CancelAnswer{Key: e.Key, Seq: e.Seq})
		return nil
	})
	return answers, err
}

func (d *Dispatcher) find(ctx context.Context, c Cancellation, take func(l *lane, e queue.Entry) error) error {
	l := d.lane(c.API)
	if l == nil {
		return ErrNoAPI
	}
	for number := range l.parts {
		p := l.part(number) // what others own they are asked for themselves
		if p == nil || c.Key != "" && l.queue.Partition(c.Key) != p.bucket {
			continue
		}
		found, err := p.bucket.Find(ctx, c.Job, c.Key)
		if err != nil {
			return err
		}
		for _, e := range found {
			if err := take(l, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancel ends one job and waits until it has ended.
func (l *lane) cancel(ctx context.Context, e queue.Entry, why string) (CancelAnswer, error) {
	a := CancelAnswer{Key: e.Key, Seq: e.Seq}
	var t *job
	l.change(func(s *schedule.Schedule) {
		var found *schedule.Job
		if found, a.Verdict = s.Cancel(e.Key, e.Seq); found != nil {
			if t = jobLocked(found); t.ended == nil {
				t.ended, t.why = make(chan struct{}), why
			}
		}
		if p := l.parts[l.queue.Partition(e.Key).Number()]; p != nil && p.replay != nil && a.Verdict == schedule.CancelGone {
			a.Verdict = schedule.CancelReading
		}
	})
	if t == nil {
		return a, nil
	}
	select {
	case <-t.ended:
	case <-ctx.Done():
		return a, fmt.Errorf("job %d of %s/%s is cancelled, but its letter is not stored yet: %w", e.Seq, l.name, e.Key, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Outcome = t.outcome; t.outcome != string(deadletter.Cancelled) {
		a.Verdict = schedule.CancelGone
	}
	return a, nil
}

// buryCancelled makes a letter of a cancelled job.
func (l *lane) buryCancelled(ctx context.Context, t *job) {
	if !l.reload(ctx, t) {
		return
	}
	detail := "cancelled by an operator"
	if t.why != "" {
		detail += ": " + t.why
	}
	l.bury(ctx, t, deadletter.Cancelled, detail, nil)
}

// reload loads a settling task's message, if it is not loaded yet. It blocks until it has, and reports false where the lane stops, the
// partition is lost, or the message is gone.
func (l *lane) reload(ctx context.Context, t *job) bool {
	l.mu.Lock()
	isLoaded := t.message != nil
	l.mu.Unlock()
	if t.part.lost.Load() {
		l.abandon(t) // its new owner ends it, and deletes the message
		return false
	}
	if isLoaded {
		return true // it has its room: who has some must not wait for more
	}
	entry, err := l.load(ctx, t)
	for ; err != nil; entry, err = l.load(ctx, t) {
		if errors.Is(err, errNoRoom) || l.givenUp(ctx, t, err) {
			return false // in want of room a restart finds the job again
		}
		l.log.Error("a job's message could not be loaded; trying again", "key", t.Queue.Key, "seq", t.Seq, "err", err)
		if !sleep(ctx, loadRetry) {
			return false
		}
		if t.part.lost.Load() {
			l.abandon(t)
			return false
		}
	}
	l.mu.Lock()
	if t.terms == nil {
		t.bind(l.terms)
	}
	rule := t.terms.api.Rule
	l.mu.Unlock()
	job, _ := ingest.Restore(ingest.Message{Key: t.Queue.Key, Header: entry.Header, Body: entry.Data}, rule, entry.Time)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.message, t.accepted = job, bucket.MicrosOf(entry.Time)
	return true
}
