package takeover

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/settle"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// newSettling returns a worker with everything that stores the ends of jobs, whose partition other replicas may own.
func newSettling(t *testing.T) (*rig, *Takeover) {
	t.Helper()
	d, right := owning(t)
	var err error
	if d.Calls, err = stream.NewWriter(d.Conn, nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	if d.Letters, err = deadletter.Open(t.Context(), deadletter.Options{
		Conn: d.Conn, JetStream: d.JS, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxWaiting: 1 << 20, Log: d.Log,
		Registerer: prometheus.NewRegistry(),
	}); err != nil {
		t.Fatal(err)
	}
	w := newRig(d, payQueue(t, d), &httpcall.API{
		Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Timeout: time.Minute, MaxResult: 1 << 10, Rule: &ingest.Rule{API: "pay", Methods: []string{"POST"}},
		Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}},
	})
	p := w.opened(ownership.Tenure{Lease: right})
	if p.Markers, err = p.Bucket.Own(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running errgroup.Group
	for _, run := range []func(context.Context) error{d.Calls.Run, d.Letters.Run, p.Markers.Run} {
		running.Go(func() error { return run(ctx) })
	}
	running.Go(func() error { return p.Lease.Keep(ctx, func(*lease.Member) {}, func() {}) })
	t.Cleanup(func() { stop(); _ = await.Result(t, "the end of the writers", running.Wait) })
	return w, p
}

// TestNoLetterBesideALateResult checks that an owner that does not know the outcome of a job's call finds the result
// that the calling replica has stored meanwhile. If there is none, the owner bars any later result before it stores the
// letter. A result that an owner in between has barred does not count as stored: its job becomes a letter.
func TestNoLetterBesideALateResult(t *testing.T) {
	w, p := newSettling(t)
	js := w.Env.JS
	lost := func(f *foundJob) {
		f.Lose(&lane.FoundIntent{Intent: queue.Intent{Call: 1, Accepted: f.Accepted}, Stored: time.Now()})
	}
	answered := func(f *foundJob) {
		lost(f)
		f.Flown = &recorder.Found{State: recorder.Answered, Answer: &recorder.Answer{Sent: true, Status: 200, Billed: "yes", Body: []byte("{}")}}
	}
	answer := func(f *foundJob, ctx context.Context) {
		r := httpcall.Response{Sent: true, Status: 200, Body: []byte("{}"), Started: time.Now(), Ended: time.Now()}
		f.w.Conclude(ctx, f.Job, r, httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
	}
	late := func(of ledger.Job) *jetstream.PubAck {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
			ingest.HeaderMsgID: {"result." + ledger.OriginOf(of.Stream, of.Seq, of.Accepted)}, ingest.HeaderJobID: {of.ID},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	const standsAlready, barredBefore = 1, 2
	for i, c := range []struct {
		what   string
		before int
		found  []func(*foundJob)
		end    func(*foundJob, context.Context)
		detail string // of the letter, "" for none
	}{
		{"a lost call", 0, []func(*foundJob){lost}, (*foundJob).endLost, "the worker died after call 1 was to start"},
		{"a lost call whose result came", standsAlready, []func(*foundJob){lost}, (*foundJob).endLost, ""},
		{"a noted answer", 0, []func(*foundJob){answered}, (*foundJob).endAnswered, ""},
		{"an answer to a call of its own", 0, nil, answer, ""},
		{"an answer to a call of its own that was barred", barredBefore, nil, answer, "had barred the result"},
		{"a noted answer that was barred", barredBefore, []func(*foundJob){answered}, (*foundJob).endAnswered, "had barred the result"},
	} {
		key, seq := string(rune('a'+i)), uint64(i+1)
		f := foundOf(w, p, seq, key)
		of := w.settler.Evidence.Of(f.Job)
		for _, known := range c.found {
			known(f)
		}
		switch c.before {
		case standsAlready:
			late(of)
		case barredBefore:
			if at, ok := w.settler.Bar(t.Context(), f.Job); at != 0 || !ok {
				t.Fatalf("%s: a result stands at %d: %v", c.what, at, ok)
			}
		}
		await.Return(t, "the job's end", func() { c.end(f, t.Context()) })
		if ack := late(of); !ack.Duplicate {
			t.Errorf("%s: a late result is stored", c.what)
		}
		letters := lettersOf(t, js, key)
		switch {
		case c.detail == "" && len(letters) != 0:
			t.Errorf("%s: a letter beside the result: %v", c.what, letters)
		case c.detail != "" && (len(letters) != 1 || !strings.Contains(letters[0], c.detail)):
			t.Errorf("%s: the letters say %q, want %q", c.what, letters, c.detail)
		}
		if found, err := ledger.LookUp(t.Context(), js, of, time.Unix(0, 0)); err != nil || (found.Result == 0) != (c.detail != "") {
			t.Errorf("%s: a result stands at %d: %v", c.what, found.Result, err)
		}
	}
	await.Return(t, "what the worker runs", w.Running.Wait)
}

// lettersOf returns the details of a key's letters.
func lettersOf(t *testing.T, js jetstream.JetStream, key string) (details []string) {
	t.Helper()
	s, err := js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && seq > 0; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(msg.Subject, "."+key) {
			details = append(details, msg.Header.Get(deadletter.HeaderDetail))
		}
	}
	return details
}

// TestJobStaysUntilItsLetterIsTold checks that a job is deleted only when its letter and the letter's event are stored.
func TestJobStaysUntilItsLetterIsTold(t *testing.T) {
	w, p := newSettling(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	end := func(ctx context.Context, seq uint64) {
		f := foundOf(w, p, seq, "k")
		letter := settle.Letter(f.Job, deadletter.Rejected, "no", 400, deadletter.NotBilled)
		await.Return(t, "the job's end", func() { w.settler.BuryLetter(ctx, f.Job, letter) })
	}
	end(t.Context(), 1)
	if n := w.Sched.At(w.Now()).Unfinished(); n != 0 || p.Bucket.Unswept() != 1 {
		t.Errorf("%d jobs are left, and %d are to be deleted", n, p.Bucket.Unswept())
	}
	for i, name := range []string{deadletter.EventsStream, deadletter.Stream} {
		if err := w.Env.JS.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		end(stopped, uint64(i+2)) // tries once
		if n := w.Sched.At(w.Now()).Unfinished(); n != i+1 || p.Bucket.Unswept() != 1 {
			t.Errorf("without %s %d jobs are left, and %d are to be deleted", name, n, p.Bucket.Unswept())
		}
	}
}
