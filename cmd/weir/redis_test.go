package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// redisServer is a real redis-server of this test, on a free port, without persistence: killing it forgets everything.
type redisServer struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
}

func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	s := &redisServer{t: t, addr: freePort(t), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command("redis-server", append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.t.TempDir(), "--save", "", "--appendonly", "no",
	}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.client() // it answers
}

func (s *redisServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // SIGKILL
	_ = await.Result(s.t, "the end of a killed redis-server", s.cmd.Wait)
	s.cmd = nil
}

func (s *redisServer) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *redisServer) client() redisstore.Client {
	s.t.Helper()
	c, err := redisstore.Dial(s.t.Context(), "redis://"+s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// redisSetting is the address as the worker's settings have it.
func redisSetting(t *testing.T, url string) config.Secret {
	t.Helper()
	t.Setenv("WEIR_REDIS_URL", url)
	t.Setenv("WEIR_CONFIG", "")
	s, err := config.ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	return s.RedisURL
}

// redisRig is a weir whose limits are counted in a real Redis.
type redisRig struct {
	*rig
	server *redisServer
}

func newRedisRig(t *testing.T, o fakeapi.Options, yaml string) *redisRig {
	t.Helper()
	o.Key = fakeapi.KeyFrom{Segment: -1}
	server := startRedis(t)
	r := readyRig(t, o, yaml)
	r.redis = redisSetting(t, "redis://"+server.addr)
	r.start()
	t.Cleanup(r.stop)
	return &redisRig{r, server}
}

// submitMany submits n jobs of seven keys, numbered from first, and expects a receipt for each.
func (r *redisRig) submitMany(first, n int) {
	r.t.Helper()
	var jobs []*nats.Msg
	for i := first; i < first+n; i++ {
		jobs = append(jobs, jobFor("pay", fmt.Sprint("k", i%7), fmt.Sprintf(`{"n":%d}`, i)))
	}
	fillTaken(r.t, r.nc, jobs)
}

// limiterUp is the metric weir_limiter_up.
func (r *redisRig) limiterUp() bool {
	return strings.Contains(r.get("/metrics"), "\nweir_limiter_up 1\n")
}

func stamped(arrivals []fakeapi.Arrival) []bucket.Arrival {
	stamps := make([]bucket.Arrival, len(arrivals))
	for i, a := range arrivals {
		stamps[i] = bucket.Arrival{At: a.At, End: a.End}
	}
	return stamps
}

// check holds every arrival against limits, and the calls of each key against its own rate and order.
func (r *redisRig) check(rate bucket.Rate, limits ...bucket.Limit) {
	r.t.Helper()
	all := r.api.All()
	r.checkStarts(limits...)
	for _, l := range limits {
		r.hold(l.Name, all, l)
	}
	for _, key := range fakeapi.KeysOf(all) {
		of := fakeapi.OfKey(all, key)
		r.hold("key "+key, of, bucket.Limit{Name: "rate", Rate: &rate})
		r.checkOrder(of)
	}
}

// redisJitter has room for what a machine does that runs a redis-server and many tests beside.
const redisJitter = 20 * time.Millisecond

func (r *redisRig) hold(what string, arrivals []fakeapi.Arrival, l bucket.Limit) {
	r.t.Helper()
	r.referee().hold(what, stamped(arrivals), l, 2*redisJitter) // blurs the burst, not the count
}

func sharedRate(name string, count, burst int64) bucket.Limit {
	return bucket.Limit{Name: name, Rate: &bucket.Rate{Count: count, Per: time.Second, Burst: burst}}
}

var threeSeconds = bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 150, Window: bucket.Sliding, Per: 3 * time.Second}}

const redisYAML = `
apis:
  pay:
    url: %s
    price: 0.50
    idempotency: {header: Idempotency-Key}
    timeout: 5s
    jitter: 20ms
    bucket: {rate: 30/s, capacity: 5000, in_flight: 8}
    limits:
      - {name: account, rate: 100/s}
      - {name: three, quota: 150/3s, window: sliding}
      - {name: spend, budget: 150.00/day, on_exhausted: dead_letter}
`

// TestRedisMainJob: the main job with shared limits in Redis conforms, and hardly any of the rate is left unused.
func TestRedisMainJob(t *testing.T) {
	const jobs = 600
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, `
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
	r.submitMany(0, jobs)
	arrivals := r.awaitCalls(jobs)
	r.check(bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, sharedRate("account", 150, 1))
	r.referee().used(arrivals[:jobs*3/4], 100, 150, 0.9) // while every key had jobs
}

// TestRedisFlushed: a Redis that has lost everything gives nothing away. What it had counted comes from the ledger, so
// that the budget is neither exceeded nor forfeited.
func TestRedisFlushed(t *testing.T) {
	const jobs = 320
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	client := r.server.client()
	r.submitMany(0, jobs)
	for _, n := range []int{60, 120, 220} {
		r.awaitCalls(n)
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
	if letters := r.messages("WEIR_DEAD"); letters != jobs-300 {
		t.Errorf("%d letters over budget, want %d", letters, jobs-300)
	}
}

// TestRedisStopped: while Redis does not answer jobs are taken and no call is made; afterwards calls go on.
func TestRedisStopped(t *testing.T) {
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 100)
	r.awaitCalls(30)
	r.server.signal(freezes)
	r.eventually("a limiter that is down", func() bool { return !r.limiterUp() })
	held := len(r.api.All())
	r.submitMany(100, 100)
	if n := len(r.api.All()); n != held {
		t.Errorf("%d calls were made without a limiter", n-held)
	}
	r.server.signal(thaws)
	r.awaitCalls(200)
	if !r.limiterUp() {
		t.Error("the limiter answers and is not up")
	}
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
}

// TestRedisKilled: a Redis that dies and comes back empty holds calls, not jobs.
func TestRedisKilled(t *testing.T) {
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 100)
	r.awaitCalls(30)
	r.server.kill()
	r.eventually("a limiter that is down", func() bool { return !r.limiterUp() })
	r.submitMany(100, 100)
	r.server.start()
	r.awaitCalls(200)
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
}

// TestRedisOverARestart: the worker stops and starts, and Redis is emptied in between: what was used is known.
func TestRedisOverARestart(t *testing.T) {
	const jobs = 320
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	client := r.server.client()
	r.submitMany(0, jobs)
	r.awaitCalls(60)
	r.stop()
	r.start()
	r.awaitCalls(160)
	r.stop()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestLimitsChangeHands: Redis counts, then the process, then Redis again; what was used stays used.
func TestLimitsChangeHands(t *testing.T) {
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 320)
	shared := r.redis
	for i, n := range []int{60, 130, 210} {
		r.awaitCalls(n)
		r.stop()
		if r.redis = shared; i%2 == 0 {
			r.redis = config.Secret{}
		}
		r.start()
	}
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestRedisKilledWorkers: the worker is killed again and again; Redis knows what its calls took.
func TestRedisKilledWorkers(t *testing.T) {
	server := startRedis(t)
	t.Setenv("WEIR_REDIS_URL", "redis://"+server.addr)
	const line = "idempotency: {header: Idempotency-Key}"
	restartUnderLoad(t, line, 5, (*process).kill).judge(line)
}

// TestRedisRefusals: what will not work is refused at the start, with the fix, and no password is shown.
func TestRedisRefusals(t *testing.T) {
	evicting := startRedis(t, "--maxmemory-policy", "allkeys-lru")
	locked := startRedis(t)
	if err := locked.client().ConfigSet(t.Context(), "requirepass", "open-sesame").Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, url, want string }{
		{"evicting", "redis://" + evicting.addr, "maxmemory-policy noeviction"},
		{"wrong password", "redis://:hunter2@" + locked.addr, "WRONGPASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readyRig(t, fakeapi.Options{}, redisYAML)
			r.redis = redisSetting(t, c.url)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w, err := worker.Start(ctx, r.settings(), testLog(t))
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
