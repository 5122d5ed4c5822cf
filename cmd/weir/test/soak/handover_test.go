package soak

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
)

// TestPaceOverHandovers: a key that changes hands is called at its pace: the new owner learns it from
// the ledger, by no clock of the old one's.
func TestPaceOverHandovers(t *testing.T) {
	t.Parallel()
	const yaml = "apis:\n  pay:\n    url: %s/v1\n    idempotency: {header: Idempotency-Key}\n    jitter: 20ms\n" +
		"    bucket: {rate: 1/1s, capacity: 5000}\n"
	r := weirtest.NewReplicas(t, servers.OneServer(t), 1, yaml)
	r.Each, r.Procs = append(r.Each, append([]string{}, r.Each[0]...)), append(r.Procs, nil)
	r.Each[1] = append(r.Each[1], "WEIR_INSTANCE=replica-1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const keys, jobs = 8, 10
	for n := range jobs {
		for k := range keys {
			r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", k), fmt.Sprintf("job-%d-%d", k, n), fmt.Appendf(nil, `{"n":%d}`, n))
		}
	}
	more := func(n int) { r.AwaitAll(min(len(r.API.All())+n, keys*jobs)) } // publishing may have taken long
	more(keys)
	r.StartOne(1)
	more(2 * keys)
	r.StopOne(1)
	r.StartOne(1)
	r.AwaitEmpty()
	rate := bucket.Rate{Count: 1, Per: time.Second, Burst: 1}
	all, started := r.API.All(), map[string][]bucket.Arrival{}
	for _, c := range r.Records() {
		started[c.Key] = append(started[c.Key], bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()})
	}
	for _, key := range fakeapi.KeysOf(all) {
		limit := bucket.Limit{Name: key, Rate: &rate}
		r.Referee().Hold("starts", started[key], limit, referee.RedisJitter)
		r.Referee().Hold("arrivals", referee.Stamped(fakeapi.OfKey(all, key)), limit, 10*referee.RedisJitter)
	}
	orderly := r.LongestGap()
	t.Logf("%d calls; the longest a key waited while owners changed in order: %s; by replica: %v", len(all), orderly, r.CallsBy())
	if orderly > 5*rate.Per+10*r.Referee().Eps() {
		t.Errorf("a key waited for %s while owners changed in order: its interval is %s", orderly, rate.Per)
	}
}
