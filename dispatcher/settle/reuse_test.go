package settle

import (
	"net/http"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/reuse"
	"weir/ingest"
	"weir/ingest/await"
)

// TestAnswersEndWaitsForOtherJobs checks that jobs of other keys no longer wait for a job's retry if the answer to
// another call of its key holds that key for long, or begins an operation that takes the key's last call in flight.
func TestAnswersEndWaitsForOtherJobs(t *testing.T) {
	now := time.Now()
	plain := httpcall.Response{Sent: true, Status: http.StatusOK, Header: http.Header{}, Started: now, Ended: now}
	holding := plain
	holding.Header = http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"3600"}}
	for _, c := range []struct {
		what  string
		r     httpcall.Response
		leads bool
	}{{"an answer", plain, true}, {"an answer that holds the key", holding, false}, {"the begin of an operation", accepted(), false}} {
		w, j, _, _ := operating(t)
		api := *w.Terms.API
		api.Reuse, api.Retry.Obey = &reuse.Rule{For: time.Hour, AcrossKeys: true}, true
		api.Rules.Key = bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 10, InFlight: 1}
		w.Mu.Lock()
		w.Terms = w.Env.NewTerms(&api, w.Terms)
		w.Sched.Adopt(w.Terms.Policy)
		w.Sched.Rebind(j.Queue, w.Now())
		w.AdoptReuseLocked()
		leader := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 2, &j.Part.Partition), 2))
		for _, of := range []*lane.Job{leader, j} {
			of.Bind(w.Terms)
		}
		leader.Message, leader.Calls = &ingest.Job{API: "pay", Key: "k", ID: "leader"}, 1
		w.CompareLocked(leader, reuse.Sum{1})
		w.Mu.Unlock()
		if _, leads := w.RequestOf(leader, &plain); !leads {
			t.Fatal("no job leads")
		}
		await.Return(t, "the outcome", func() { w.settler.Settle(t.Context(), j, c.r) })
		if _, leads := w.RequestOf(leader, &plain); leads != c.leads {
			t.Errorf("after %s, other jobs wait for the key's retry: %v", c.what, leads)
		}
	}
}
