package dispatcher

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// granted returns a job whose call starts in its slot, and sets the worker's clock to that slot.
func (w *apiWorker) granted(t *testing.T, p *tenancy, key string, seq uint64) *lane.Job {
	t.Helper()
	w.Mu.Lock()
	defer w.Mu.Unlock()
	p.Open = true
	return w.startLocked(t, w.Sched.Push(key, seq, &p.Partition), seq)
}

// startLocked returns a job of a queue when its call starts in its next slot, and sets the worker's clock to that slot.
func (w *apiWorker) startLocked(t *testing.T, q *schedule.KeyQueue, seq uint64) *lane.Job {
	t.Helper()
	now := w.Now()
	for range 10 {
		fx := w.Sched.Step(now)
		if err := w.slots.store.Settle(t.Context(), fx.Unused); err != nil {
			t.Fatal(err)
		}
		for _, j := range fx.Load {
			lane.JobLocked(j).Bind(w.Terms)
			w.Sched.Loaded(j)
		}
		if len(fx.Asks) > 0 {
			answers, err := w.slots.store.Reserve(t.Context(), fx.Asks)
			if err != nil {
				t.Fatal(err)
			}
			w.Sched.Answer(&fx, schedule.Reply{Sent: now, Came: now, Answers: answers})
			now = q.Job(seq).At
		}
		for _, j := range fx.Start {
			w.Now = func() bucket.Micros { return now }
			return lane.JobLocked(j)
		}
	}
	t.Fatalf("no slot was granted to job %d", seq)
	return nil
}

// TestCallAsksForTheRight checks that a call is made only while weir has the right to call jobs of its partition, and
// only in its slot. call checks both when the slot comes, before it counts or prepares anything, and again before the
// first byte is sent. If the api may have forgotten the job's key by then, the job expires.
func TestCallAsksForTheRight(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{}, bucket.Rate{Count: 1, Per: time.Second, Burst: 1})
	w.pace.Stored = func(string) bucket.Micros { return 0 }
	var came atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := w.opened(ownership.Tenure{})
	for i, c := range []struct {
		what                     string
		lostFirst, lostLater     bool
		missedFirst, missedLater bool
		forgotten                bool
		made                     bool
		requests                 int32 // that were prepared
	}{
		{what: "with the right", made: true, requests: 1},
		{what: "without it", lostFirst: true},
		{what: "without it when the first byte is about to be sent", lostLater: true, requests: 1},
		{what: "when the slot has passed", missedFirst: true},
		{what: "when the slot has passed before the first byte is sent", missedLater: true, requests: 1},
		{what: "when the api may have forgotten its key", forgotten: true},
	} {
		key := strconv.Itoa(i)
		j := w.granted(t, p, key, uint64(i+1))
		slot, late := w.Now(), schedule.Lateness(&w.Sched.Policy().Rules)+time.Microsecond
		var passed atomic.Int64 // since the slot
		w.Now = func() bucket.Micros { return slot.Add(time.Duration(passed.Load())) }
		if c.missedFirst {
			passed.Store(int64(late))
		}
		var requests atomic.Int32
		api := &httpcall.API{
			Name: "pay", URL: to, Timeout: time.Minute, MaxResult: 1 << 10, Rule: &ingest.Rule{API: "pay", Methods: []string{"POST"}},
			Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key", For: time.Hour},
			Headers: func() ([]ingest.HeaderField, error) { // asked while the request is prepared
				requests.Add(1)
				p.Lost.Store(c.lostFirst || c.lostLater)
				if c.missedLater {
					passed.Store(int64(late))
				}
				return nil, nil
			},
		}
		j.Terms = &lane.Terms{API: api, Call: httpcall.NewClient(api, "", 1, nil)}
		if err := j.Terms.Call.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		j.Message = &ingest.Job{API: "pay", Key: key, ID: "j", Method: "POST"}
		began := slot.Time().Add(-58 * time.Minute)
		if c.forgotten {
			began = began.Add(-time.Minute)
		}
		j.Doubt.Add(deadletter.BilledUnknown, api.CallIdentity(began))
		came.Store(0)
		p.Lost.Store(c.lostFirst)
		_, made := w.caller.call(t.Context(), j)
		sent := int32(0)
		if c.made {
			sent = 1
		}
		if made != c.made || came.Load() != sent || requests.Load() != c.requests || j.Calls != int(sent) {
			t.Errorf("%s: made %v, %d calls came, %d requests were prepared, %d calls are counted", c.what, made, came.Load(), requests.Load(), j.Calls)
		}
		if j.Forgotten != c.forgotten || j.Past(w.Now()) != c.forgotten {
			t.Errorf("%s: its key is forgotten: %v, it expires: %v", c.what, j.Forgotten, j.Past(w.Now()))
		}
		if c.missedLater && !made {
			w.Mu.Lock()
			if again := w.startLocked(t, j.Queue, j.Seq); slot.Until(again.At) >= time.Second {
				t.Errorf("%s: the next slot is %s later, as if the slot had been used", c.what, slot.Until(again.At))
			}
			w.Mu.Unlock()
		}
		j.Terms.Call.Conns.Close()
		w.Now = w.Env.Now
	}
}
