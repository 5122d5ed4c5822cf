package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// TestPaceOverHandovers: a key that changes hands is called at its pace: the new owner learns it from
// the ledger, by no clock of the old one's.
func TestPaceOverHandovers(t *testing.T) {
	t.Parallel()
	const yaml = "apis:\n  pay:\n    url: %s/v1\n    idempotency: {header: Idempotency-Key}\n    jitter: 20ms\n" +
		"    bucket: {rate: 1/1s, capacity: 5000}\n"
	r := newReplicas(t, oneServer(t), 1, yaml)
	r.each, r.procs = append(r.each, append([]string{}, r.each[0]...)), append(r.procs, nil)
	r.each[1] = append(r.each[1], "WEIR_INSTANCE=replica-1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const keys, jobs = 8, 10
	for n := range jobs {
		for k := range keys {
			r.publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", k), fmt.Sprintf("job-%d-%d", k, n), fmt.Appendf(nil, `{"n":%d}`, n))
		}
	}
	more := func(n int) { r.awaitAll(min(len(r.api.All())+n, keys*jobs)) } // publishing may have taken long
	more(keys)
	r.startOne(1)
	more(2 * keys)
	r.stopOne(1)
	r.startOne(1)
	r.awaitEmpty()
	rate := bucket.Rate{Count: 1, Per: time.Second, Burst: 1}
	all, started := r.api.All(), map[string][]bucket.Arrival{}
	for _, c := range r.records() {
		started[c.Key] = append(started[c.Key], bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()})
	}
	for _, key := range fakeapi.KeysOf(all) {
		limit := bucket.Limit{Name: key, Rate: &rate}
		r.referee().hold("starts", started[key], limit, redisJitter)
		r.referee().hold("arrivals", stamped(fakeapi.OfKey(all, key)), limit, 10*redisJitter)
	}
	orderly := r.longestGap()
	t.Logf("%d calls; the longest a key waited while owners changed in order: %s; by replica: %v", len(all), orderly, r.callsBy())
	if orderly > 5*rate.Per+10*r.referee().eps() {
		t.Errorf("a key waited for %s while owners changed in order: its interval is %s", orderly, rate.Per)
	}
}
