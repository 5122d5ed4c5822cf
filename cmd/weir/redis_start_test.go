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

// TestClockWatch: a jump is one that the way there and back does not explain.
func TestClockWatch(t *testing.T) {
	var w clockWatch
	for i, c := range []struct{ ahead, wrong, jump time.Duration }{
		{40 * time.Second, 0, 0}, // never the same as ours: no jump
		{40*time.Second + 200*time.Millisecond, 0, 0},
		{41 * time.Second, 0, 800 * time.Millisecond},
		{41*time.Second + 900*time.Millisecond, 500 * time.Millisecond, 0}, // the way took a second
		{41*time.Second + 900*time.Millisecond, 0, 0},
		{-10 * time.Second, 0, -51*time.Second - 900*time.Millisecond},
	} {
		if got := w.look(c.ahead, c.wrong); got != c.jump {
			t.Errorf("look %d: a jump of %s, want %s", i, got, c.jump)
		}
	}
}
