package soak

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
)

// TestRedisDownAtTheStart: a weir whose Redis does not answer accepts jobs and is ready for them, makes no calls, says
// so, and calls when Redis is back. A restart while Redis is down forgets nothing of what was used.
func TestRedisDownAtTheStart(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, weirtest.RedisYAML)
	server := &servers.RedisServer{T: t, Addr: servers.FreePort(t)}
	t.Cleanup(server.Kill)
	r.Redis = weirtest.RedisSetting(t, "redis://"+server.Addr)
	rr := &weirtest.RedisRig{Rig: r, Server: server}
	r.Start()
	t.Cleanup(r.Stop)
	rr.SubmitMany(0, 50)
	r.Eventually("a limiter that is down", func() bool { return !rr.LimiterUp() })
	if got := r.HTTP().Get("/readyz"); !strings.HasPrefix(got, "200") || !strings.Contains(got, "api pay: calls hold until Redis at redis://"+server.Addr) {
		t.Errorf("/readyz while Redis is down: %s", got)
	}
	if out, _ := r.CLI().Run("status"); !strings.Contains(out, "api pay: the store of its limits does not answer: calls hold") {
		t.Errorf("weir status while Redis is down: %s", out)
	}
	if n := len(r.API.All()); n != 0 {
		t.Errorf("%d calls were made without a limiter", n)
	}
	server.Start()
	r.AwaitCalls(50)
	r.Eventually("a limiter that is up", rr.LimiterUp)
	server.Kill()
	r.Stop()
	r.Start()
	rr.SubmitMany(50, 270)
	server.Start()
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	rr.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
	if n := len(r.API.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}
