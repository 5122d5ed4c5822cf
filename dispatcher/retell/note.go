package retell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// A duplicate that waits for an end is noted in the control bucket, so that a restart does not forget its reply
// subject. A job without duplicates costs nothing. Every replica that starts reads all notes. A note is removed by a
// purge. The replica whose purge removes the note reports the end, so it is reported once.

const (
	notes    = "again."            // prefix of the notes' keys
	noteAge  = 30 * 24 * time.Hour // an older note is useless: its end is gone
	noteWait = 10 * time.Second    // for the server to answer
)

// noteKey returns the key under which a duplicate is noted.
func (d *Duplicate) noteKey() string {
	data, err := json.Marshal(d)
	if err != nil {
		panic("retell: a duplicate that JSON cannot carry: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return notes + hex.EncodeToString(sum[:16])
}

// keep stores the note of a duplicate that waits. If the duplicate's end was reported meanwhile, keep removes the note
// again.
func (t *Teller) keep(ctx context.Context, w *waiting) {
	if t.Notes == nil || w.noted.Load() {
		return
	}
	data, err := json.Marshal(&w.Duplicate)
	if err == nil {
		_, err = t.Notes.Put(ctx, w.noteKey(), data)
	}
	if err != nil {
		t.Log.Warn("could not note a resubmitted job: a restart forgets its reply subject", "api", w.API, "job_id", w.Job, "err", err)
		return
	}
	w.noted.Store(true)
	t.mu.Lock()
	waits := w.at != nil
	t.mu.Unlock()
	if !waits {
		t.takeNote(w)
	}
}

// noteRest notes the duplicates that were not looked for when ctx ended.
func (t *Teller) noteRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	for {
		select {
		case w := <-t.looks:
			t.keep(ctx, w)
		default:
			return
		}
	}
}

// takeNote removes a duplicate's note, and reports whether this replica may report the end. It returns false only if
// another replica is known to have removed the note. If the server does not answer, it returns true: an end that is
// sent twice is better than none.
func (t *Teller) takeNote(w *waiting) bool {
	if t.Notes == nil || !w.noted.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteWait)
	defer cancel()
	bucket := t.Notes.Bucket()
	reply, err := t.JetStream.Conn().RequestWithContext(ctx, "$JS.API.STREAM.PURGE.KV_"+bucket, fmt.Appendf(nil, `{"filter":"$KV.%s.%s"}`, bucket, w.noteKey()))
	var answer struct {
		Success bool `json:"success"`
		Purged  int  `json:"purged"`
	}
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	if err != nil || !answer.Success {
		t.Log.Warn("could not remove the note of a resubmitted job: a restart may send its end once more", "api", w.API, "job_id", w.Job, "err", err)
		return true
	}
	return answer.Purged > 0
}

// takeUp registers the duplicates that were noted before a restart, and hands them to the lookers. It blocks until it
// has handed over all of them.
func (t *Teller) takeUp(ctx context.Context) error {
	if t.Notes == nil {
		return nil
	}
	watch, err := t.Notes.Watch(ctx, notes+">")
	if err != nil {
		return fmt.Errorf("notes of resubmitted jobs: %w", err)
	}
	defer func() { _ = watch.Stop() }()
	for {
		var entry jetstream.KeyValueEntry
		select {
		case next, open := <-watch.Updates():
			if !open {
				return errors.New("notes of resubmitted jobs: the watch has ended")
			}
			entry = next
		case <-ctx.Done():
			return nil
		}
		if entry == nil {
			return nil // all notes from before were read
		}
		var w *waiting
		var d Duplicate
		if entry.Operation() == jetstream.KeyValuePut && json.Unmarshal(entry.Value(), &d) == nil && d.noteKey() == entry.Key() {
			w = t.register(d, time.Now())
		}
		if w == nil {
			continue
		}
		w.noted.Store(true)
		if time.Since(entry.Created()) > noteAge {
			t.forget(w)
			continue
		}
		select {
		case t.looks <- w:
		case <-ctx.Done():
			return nil
		}
	}
}

// forget drops a duplicate whose end will not be reported.
func (t *Teller) forget(w *waiting) {
	t.mu.Lock()
	t.removeLocked(w)
	t.mu.Unlock()
	t.takeNote(w)
}

// takeUpAll calls takeUp until it succeeds.
func (t *Teller) takeUpAll(ctx context.Context) error {
	for ctx.Err() == nil {
		err := t.takeUp(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, context.Canceled) {
			t.Log.Warn("could not read the notes of resubmitted jobs; trying again", "err", err)
		}
		stream.Sleep(ctx, followRetry)
	}
	return nil
}
