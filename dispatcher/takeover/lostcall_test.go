package takeover

import (
	"strings"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestLostCallsInARow checks that a job with a lost call is called again under the same idempotency key, until
// schedule.MostDeaths owners in a row have died with a call of it. Its mark and its next intent count them. It then
// becomes a letter exhausted. Without that key it becomes a letter unknown at once. Each lost call gets a record.
func TestLostCallsInARow(t *testing.T) {
	w, p := newSettling(t)
	w.Terms.API.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key"}
	same := w.Terms.API.KeyIdentity()
	js := w.Env.JS
	bucket, err := js.Stream(t.Context(), p.Bucket.Name())
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		reason deadletter.Reason // of its letter; "": it is called again
		detail string
	}
	repeated := end{}
	for i, c := range []struct {
		what, identity string // of the lost call's key
		deaths         int    // before
		end
	}{
		{"the first", same, 0, repeated},
		{"the last that may be", same, schedule.MostDeaths - 2, repeated},
		{"one too many", same, schedule.MostDeaths - 1, end{deadletter.Exhausted, "5 workers died while they called it"}},
		{"one without a key", "", 0, end{deadletter.Unknown, "the worker died after call 1 was to start"}},
		{"many without a key", "", schedule.MostDeaths, end{deadletter.Unknown, "the worker died after call 1 was to start"}},
		{"one under another key", "Other-Key@0", 0, end{deadletter.Unknown, "has changed since"}},
	} {
		key := string(rune('a' + i))
		f := foundOf(w, p, uint64(i+1), key)
		of := w.settler.Evidence.Of(f.Job)
		f.Lose(&lane.FoundIntent{
			Intent: queue.Intent{Call: 1, Deaths: c.deaths, Accepted: f.Accepted, Idempotency: c.identity}, Stored: time.Now(),
		})
		await.Return(t, "what becomes of "+c.what, func() { f.endLost(t.Context()) })
		letters := lettersOf(t, js, key)
		kept, err := ledger.LookUp(t.Context(), js, of, time.Unix(0, 0))
		if err != nil || kept.Record == nil {
			t.Fatalf("%s has no record: %v", c.what, err)
		}
		if r := kept.Record; r.Call != 1 || r.Final != (c.end != repeated) || r.Idempotency != c.identity || r.Billed != deadletter.BilledUnknown {
			t.Errorf("%s has the record %+v", c.what, r)
		}
		if c.end != repeated {
			if len(letters) != 1 || !strings.Contains(letters[0], c.detail) || kept.Record.Outcome != string(c.reason) || f.Rests() {
				t.Errorf("%s becomes %s, its letters say %q", c.what, kept.Record.Outcome, letters)
			}
			continue
		}
		if len(letters) != 0 || !f.Rests() {
			t.Errorf("%s: its job rests: %v, its letters say %q", c.what, f.Rests(), letters)
		}
		msg, err := bucket.GetMsg(t.Context(), f.Marks.Last)
		if err != nil {
			t.Fatalf("%s has no mark: %v", c.what, err)
		}
		if mark, err := (queue.Entry{Data: msg.Data}).RetryMark(); err != nil || mark.Deaths != c.deaths+1 || mark.Idempotency != c.identity {
			t.Errorf("%s has the mark %+v, %v", c.what, mark, err)
		}
		if next := f.Intent(2); next.Deaths != c.deaths+1 {
			t.Errorf("%s: the intent of the next call counts %d deaths", c.what, next.Deaths)
		}
	}
}

// TestLostCallUnderAForgottenKey checks that a lost call is repeated only while the api knows the key of the job's first
// call that may have been processed: the lost one, one that a mark tells of, or one before the job was redriven.
func TestLostCallUnderAForgottenKey(t *testing.T) {
	const day = 24 * time.Hour
	w, p := newSettling(t)
	api := w.Terms.API
	api.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key", For: day}
	ago := func(age time.Duration) string { return api.CallIdentity(time.Now().Add(-age)) }
	for i, c := range []struct {
		what, lost, marked, redriven string // identities
		parked                       bool
	}{
		{"known", ago(23 * time.Hour), "", "", false},
		{"forgotten", ago(day), "", "", true},
		{"of an unknown time", api.KeyIdentity(), "", "", true},
		{"after a call whose key is forgotten", ago(time.Hour), ago(day), "", true},
		{"after a call whose key is known", ago(time.Hour), ago(2 * time.Hour), "", false},
		{"after a redrive whose key is forgotten", ago(time.Hour), "", ago(day), true},
	} {
		key := string(rune('a' + i))
		f := foundOf(w, p, uint64(i+1), key)
		if c.redriven != "" {
			f.Message.Redrives, f.Message.Header = 1, nats.Header{deadletter.HeaderKeyed: {c.redriven}, deadletter.HeaderBilled: {string(deadletter.BilledUnknown)}}
			f.RecallLocked()
		}
		if c.marked != "" {
			f.Doubt.Recall(deadletter.BilledUnknown, c.marked)
		}
		f.Lose(&lane.FoundIntent{Intent: queue.Intent{Call: 1, Accepted: f.Accepted, Idempotency: c.lost}, Stored: time.Now()})
		await.Return(t, "what becomes of a call "+c.what, func() { f.endLost(t.Context()) })
		letters := lettersOf(t, w.Env.JS, key)
		if parked := len(letters) == 1 && strings.Contains(letters[0], "may have forgotten the idempotency key"); parked != c.parked || f.Rests() == c.parked {
			t.Errorf("%s: it rests: %v, letters %q", c.what, f.Rests(), letters)
		}
	}
}

// TestForgottenJobIsParked checks that a job becomes a letter unknown if the api may have forgotten its key since it
// was made ready, whatever is configured by then.
func TestForgottenJobIsParked(t *testing.T) {
	w, p := newSettling(t)
	w.Terms.API.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key"}
	f := foundOf(w, p, 1, "k")
	f.Doubt.Add(deadletter.BilledUnknown, w.Terms.API.CallIdentity(time.Now()))
	f.Forgotten = true
	await.Return(t, "the job's end", func() { w.settler.Expire(t.Context(), f.Job) })
	if letters := lettersOf(t, w.Env.JS, "k"); len(letters) != 1 || !strings.Contains(letters[0], "may have forgotten the idempotency key") {
		t.Errorf("its letters say %q", letters)
	}
}

// TestLostCallBehindALateRecord checks a lost call whose own process's record came late, so that the stream drops the
// record that ends the job as a duplicate. The late record says that another call follows, and a mark says that the job
// ends.
func TestLostCallBehindALateRecord(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	late := ledger.Record{
		API: "pay", Key: "k", Job: "k", Stream: p.Bucket.Name(), Seq: 1, Call: 1, Accepted: f.Accepted.Time(), Outcome: ledger.PushedBack,
		Billed: deadletter.NotBilled,
	}
	if _, err := w.Env.JS.PublishMsg(t.Context(), late.Message()); err != nil {
		t.Fatal(err)
	}
	f.Lose(&lane.FoundIntent{Intent: queue.Intent{Call: 1, Accepted: f.Accepted}, Stored: time.Now()})
	await.Return(t, "the job's end", func() { f.endLost(t.Context()) })
	if letters := lettersOf(t, w.Env.JS, "k"); len(letters) != 1 || len(f.Marks.Ends) != 1 {
		t.Errorf("%d marks of its end, its letters say %q", len(f.Marks.Ends), letters)
	}
}
