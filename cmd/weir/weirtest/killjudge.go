package weirtest

import (
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest/store"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// checkDepartures checks the starts of calls in weir's ledger against the rate and the order. Unlike arrivals, starts
// do not include delays by the network or a busy machine.
func (r *KillRig) checkDepartures() {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	calls := map[string][]ledger.Record{}
	for _, c := range store.RecordsOf(r.T, js) {
		if !c.Planned.IsZero() {
			calls[c.Key] = append(calls[c.Key], c)
		}
	}
	rate := bucket.Rate{Count: killRate, Per: time.Second, Burst: 1}
	for key, of := range calls {
		starts := make([]bucket.Arrival, len(of))
		last := uint64(0)
		for i, c := range of {
			starts[i] = bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()}
			if c.Call == 1 && c.Seq < last {
				r.T.Errorf("key %s: job %d was first called after job %d", key, c.Seq, last)
			}
			last = max(last, c.Seq)
		}
		r.Referee().Hold("starts of "+key, starts, bucket.Limit{Name: "rate", Rate: &rate}, killJitter)
	}
}

// The kill tests run many processes on a small machine, so calls may arrive late.
const (
	killRate   = 50
	killJitter = 20 * time.Millisecond
)

// Judge compares the calls that the api saw with weir's promises.
func (r *KillRig) Judge(line string) {
	t := r.T
	arrivals, ended := r.API.All(), r.Outcomes()
	calls := map[string]int{}
	for _, a := range arrivals {
		calls[string(a.Body)]++
	}
	idempotent := strings.HasPrefix(line, "idempotency")
	r.checkDepartures()
	lost, both, unknown, twice := 0, 0, 0, 0
	for id := range r.Acks {
		switch out := ended[id]; {
		case len(out) == 0:
			lost++
		case len(out) > 1:
			both++
			t.Logf("%s ended as %v", id, out)
		case out[0] == "unknown":
			unknown++
		case out[0] != "done":
			t.Errorf("%s ended as %s", id, out[0])
		}
	}
	for _, n := range calls {
		if n > 1 {
			twice++
		}
	}
	t.Logf("accepted %d, calls %d, lost %d, two ends %d, unknown %d, called twice %d", len(r.Acks), len(arrivals), lost, both, unknown, twice)
	if lost > 0 || both > 0 {
		t.Errorf("%d accepted jobs are lost, %d ended twice", lost, both)
	}
	if !idempotent && twice > 0 {
		t.Errorf("%d jobs were called twice on an api that is not idempotent", twice)
	}
	for _, key := range fakeapi.KeysOf(arrivals) {
		of := fakeapi.OfKey(arrivals, key)
		// If stamps may be off by more than a second, the rate cannot be judged.
		second := max(time.Second-r.Referee().Eps(), 1)
		if fullest := fakeapi.FullestByCount(of, second); fullest.Count > killRate {
			t.Errorf("key %s: %d calls arrived within %s, %d may", key, fullest.Count, second, killRate)
		}
	}
	if idempotent && unknown > 0 {
		t.Errorf("%d letters unknown on an idempotent api", unknown)
	}
}

// JudgeRedriven checks that no job was called twice, and that each job without a call has a letter. Such a job's call
// was left unknown by a kill, or the job overflowed again.
func (r *KillRig) JudgeRedriven(jobs int) {
	r.T.Helper()
	calls := map[string]int{}
	for _, a := range r.API.All() {
		calls[string(a.Body)]++
	}
	for body, n := range calls {
		if n != 1 {
			r.T.Errorf("%s was called %d times", body, n)
		}
	}
	if missing := jobs - len(calls); missing > r.Letters() {
		r.T.Errorf("%d of %d jobs were called, and %d letters are left", len(calls), jobs, r.Letters())
	}
}

// Letters returns the number of letters.
func (r *KillRig) Letters() int {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	for deadline := time.Now().Add(Patience); ; {
		s, err := js.Stream(r.T.Context(), deadletter.Stream)
		if err == nil {
			return int(s.CachedInfo().State.Msgs)
		}
		if time.Now().After(deadline) {
			r.T.Fatal(err)
		}
	}
}
