package main

import (
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
	return settingsOf(t, map[string]string{"WEIR_REDIS_URL": url, "WEIR_CONFIG": ""}).RedisURL
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
