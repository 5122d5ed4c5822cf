package limits

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestRedisMainJob: the main job with shared limits in Redis conforms, and hardly any of the rate is left unused.
func TestRedisMainJob(t *testing.T) {
	t.Parallel()
	const jobs = 600
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    jitter: 20ms
    bucket: {rate: 50/s, capacity: 5000, in_flight: 8}
    limits:
      - {name: account, rate: 150/s}
      - {name: concurrent, in_flight: 40}
`)
	r.SubmitMany(0, jobs)
	arrivals := r.AwaitCalls(jobs)
	r.Check(bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, referee.SharedRate("account", 150, 1))
	r.Referee().Used(arrivals[:jobs*3/4], 100, 150, 0.9) // while every key had jobs
}

// TestRedisStopped: while Redis does not answer jobs are taken and no call is made; afterwards calls go on.
func TestRedisStopped(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, weirtest.RedisYAML)
	r.SubmitMany(0, 100)
	r.AwaitCalls(30)
	r.Server.Signal(program.Freezes)
	r.Eventually("a limiter that is down", func() bool { return !r.LimiterUp() })
	held := len(r.API.All())
	r.SubmitMany(100, 100)
	if n := len(r.API.All()); n != held {
		t.Errorf("%d calls were made without a limiter", n-held)
	}
	r.Server.Signal(program.Thaws)
	r.AwaitCalls(200)
	r.Eventually("a limiter that answers to be up", r.LimiterUp)
	r.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
}

// TestRedisKilled: a Redis that dies and comes back empty holds calls, not jobs.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, weirtest.RedisYAML)
	r.SubmitMany(0, 100)
	r.AwaitCalls(30)
	r.Server.Kill()
	r.Eventually("a limiter that is down", func() bool { return !r.LimiterUp() })
	r.SubmitMany(100, 100)
	r.Server.Start()
	r.AwaitCalls(200)
	r.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
}

// TestRedisRefusals: what will not work is refused at the start, with the fix, and no password is shown.
func TestRedisRefusals(t *testing.T) {
	t.Parallel()
	evicting := servers.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	locked := servers.StartRedis(t)
	if err := locked.Client().ConfigSet(t.Context(), "requirepass", "open-sesame").Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, url, want string }{
		{"evicting", "redis://" + evicting.Addr, "maxmemory-policy noeviction"},
		{"wrong password", "redis://:hunter2@" + locked.Addr, "WRONGPASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := weirtest.ReadyRig(t, fakeapi.Options{}, weirtest.RedisYAML)
			r.Redis = weirtest.RedisSetting(t, c.url)
			ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
			defer cancel()
			w, err := worker.Start(ctx, r.Settings(), weirtest.TestLog(t))
			if err == nil {
				w.Stop()
				t.Fatal("it started", await.Result(t, "the end of the worker", w.Wait))
			}
			if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "hunter2") {
				t.Errorf("refused with: %s", text)
			}
		})
	}
}

// TestRedisThatIsLateRefuses: a Redis that was away at the start and says, when it answers, that the streams were put back from a backup ends
// weir with what the start would have said, before the first call.
func TestRedisThatIsLateRefuses(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	dir, addr := t.TempDir(), servers.FreePort(t)
	store := filepath.Join(dir, "nats")
	serve := func() *server.Server {
		_, text, _ := net.SplitHostPort(addr)
		port, _ := strconv.Atoi(text)
		return natstest.Start(t, store, port)
	}
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf(weirtest.RedisYAML, api.URL()))
	settings := program.ExternalSettings(t, "nats://"+addr, file, "late")
	settings.RedisURL, settings.StateDir = weirtest.RedisSetting(t, "redis://"+redis.Addr), ""
	start := func() *worker.Worker {
		w, err := worker.Start(await.Context(t, "a worker to start"), settings, weirtest.TestLog(t))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	stop := func(w *worker.Worker, ns *server.Server) {
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
		ns.Shutdown()
		ns.WaitForShutdown()
	}
	ns := serve()
	stop(start(), ns)
	weirtest.CopyTree(t, store, store+".backup")
	ns = serve()
	stop(start(), ns)
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	weirtest.CopyTree(t, store+".backup", store)
	serve()
	redis.Signal(program.Freezes)
	r := weirtest.RigBeside(t, start(), api)
	producer.FillTaken(t, r.NC, []*nats.Msg{producer.JobFor("pay", "k", "{}")})
	redis.Signal(program.Thaws)
	err = await.Result(t, "the end of the worker", r.Worker.Wait)
	r.Worker = nil
	if err == nil || !strings.Contains(err.Error(), "weir was started 1 times on this store") || !strings.Contains(err.Error(), "weir serve --restored") {
		t.Errorf("weir ended with: %v", err)
	}
	if n := len(api.All()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}
