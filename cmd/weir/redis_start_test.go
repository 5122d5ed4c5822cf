package main

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// TestRedisDownAtTheStart: a weir whose Redis does not answer takes jobs and is ready for them, calls nobody, says so, and
// calls when Redis comes. A restart while it is down forgets nothing of what was used.
func TestRedisDownAtTheStart(t *testing.T) {
	t.Parallel()
	r := readyRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, redisYAML)
	server := &redisServer{t: t, addr: freePort(t)}
	t.Cleanup(server.kill)
	r.redis = redisSetting(t, "redis://"+server.addr)
	rr := &redisRig{r, server}
	r.start()
	t.Cleanup(r.stop)
	rr.submitMany(0, 50)
	if got := r.get("/readyz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/readyz while Redis is down: %s", got)
	}
	r.eventually("a limiter that is down", func() bool { return !rr.limiterUp() })
	if n := len(r.api.All()); n != 0 {
		t.Errorf("%d calls were made without a limiter", n)
	}
	server.start()
	r.awaitCalls(50)
	r.eventually("a limiter that is up", rr.limiterUp)
	server.kill()
	r.stop()
	r.start()
	rr.submitMany(50, 270)
	server.start()
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	rr.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}
