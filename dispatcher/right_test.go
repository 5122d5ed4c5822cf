package dispatcher

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/ingest"
)

// TestCallAsksForTheRight checks that a call is made only while weir has the right to call jobs of its partition. call
// checks the right when the slot comes, before it counts or prepares anything, and again before the first byte is sent.
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
		what                 string
		lostFirst, lostLater bool
		made                 bool
		requests             int32 // that were prepared
	}{
		{what: "with the right", made: true, requests: 1},
		{what: "without it", lostFirst: true},
		{what: "without it when the first byte is about to be sent", lostLater: true, requests: 1},
	} {
		var requests atomic.Int32
		api := &httpcall.API{
			Name: "pay", URL: to, Timeout: time.Minute, MaxResult: 1 << 10, Rule: &ingest.Rule{API: "pay", Methods: []string{"POST"}},
			Headers: func() ([]ingest.HeaderField, error) { // asked while the request is prepared
				requests.Add(1)
				p.Lost.Store(c.lostFirst || c.lostLater)
				return nil, nil
			},
		}
		w.Mu.Lock()
		j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", uint64(i+1), &p.Partition), uint64(i+1)))
		w.Mu.Unlock()
		j.Terms = &lane.Terms{API: api, Call: httpcall.NewClient(api, "", 1, nil)}
		if err := j.Terms.Call.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		j.Message = &ingest.Job{API: "pay", Key: "k", ID: "j", Method: "POST"}
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
		j.Terms.Call.Conns.Close()
	}
}
