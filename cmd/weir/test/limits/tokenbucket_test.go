package limits

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
)

// TestTokenBucket: an api that keeps a token bucket gets a bucket full at once after a pause, and then what it lets in, of a key and of
// all keys together, and never more; verify judges it by its own word.
func TestTokenBucket(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay:
    url: %s
    bucket: {rate: 20/s, burst: 30, counts: token_bucket, capacity: 100, in_flight: 100}
    limits: [{name: account, rate: 30/s, burst: 45, counts: token_bucket}]
`)
	r.PutPause("")
	for i := range 60 {
		if a := r.Producer().Submit(fmt.Sprintf("weir.jobs.pay.k%d", i%2), nil, map[string]string{"X-Key": "x"}); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
	}
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	all := r.AwaitCalls(60)
	account := bucket.Rate{Count: 30, Per: time.Second, Burst: 45, Counts: bucket.ByTokens}
	r.CheckStarts(bucket.Limit{Name: "account", Rate: &account})
	if v := bucket.Check(referee.Stamped(all), bucket.Expectation{Limit: bucket.Limit{Rate: &account}, Eps: r.Referee().Eps()}); v.Outcome == bucket.Fail {
		t.Errorf("account: %v", v)
	} else {
		t.Logf("%.1f calls of a bucket of 45 left at once; how many do is the machine's speed", v.Burst)
	}
	said, code := r.CLI().Run("verify", "--json", "--api", "pay")
	var verdict struct {
		Limits []struct {
			Limit, Verdict string
			Allowed        int64
			BurstAllowed   int64 `json:"burst_allowed"`
		}
	}
	if err := json.Unmarshal([]byte(said), &verdict); err != nil || code != 0 {
		t.Fatalf("verify: %d %s", code, said)
	}
	judged := map[string]int64{}
	for _, l := range verdict.Limits {
		if l.Verdict != "pass" {
			t.Errorf("verify of %s: %+v", l.Limit, l)
		}
		judged[l.Limit] = l.BurstAllowed
	}
	if judged["bucket.rate"] != 30 || judged["account"] != 45 {
		t.Errorf("verify judges by %v", judged)
	}
	window := bucket.Rate{Count: 30, Per: time.Second, Burst: 30}
	if v := bucket.Check(referee.Stamped(all), bucket.Expectation{Limit: bucket.Limit{Rate: &window}}); v.Outcome != bucket.Fail {
		t.Errorf("no more left than a window allows: %v", v)
	}
}
