package weirtest

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
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/config"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// RedisServer is a real redis-server for one test, on a free port. It does not persist, so killing it loses all its
// data.
type RedisServer struct {
	T    *testing.T
	Addr string
	args []string
	cmd  *exec.Cmd
}

func StartRedis(t *testing.T, args ...string) *RedisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	s := &RedisServer{T: t, Addr: FreePort(t), args: args}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

func (s *RedisServer) Start() {
	s.T.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.Command("redis-server", append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.T.TempDir(), "--save", "", "--appendonly", "no",
	}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.Client() // it answers
}

func (s *RedisServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // SIGKILL
	_ = await.Result(s.T, "the end of a killed redis-server", s.cmd.Wait)
	s.cmd = nil
}

func (s *RedisServer) Signal(sig os.Signal) {
	s.T.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.T.Fatal(err)
	}
}

func (s *RedisServer) Client() redisstore.Client {
	s.T.Helper()
	c, err := redisstore.Await(await.Context(s.T, "a redis-server to answer"), "redis://"+s.Addr)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = c.Close() })
	return c
}

// RedisSetting returns the address as a setting.
func RedisSetting(t *testing.T, url string) config.Secret {
	t.Helper()
	return settingsOf(t, map[string]string{"WEIR_REDIS_URL": url, "WEIR_CONFIG": ""}).RedisURL
}

// RedisRig is a weir whose limits are counted in a real Redis.
type RedisRig struct {
	*Rig
	Server *RedisServer
}

func NewRedisRig(t *testing.T, o fakeapi.Options, yaml string) *RedisRig {
	t.Helper()
	o.Key = fakeapi.KeyFrom{Segment: -1}
	server := StartRedis(t)
	r := ReadyRig(t, o, yaml)
	r.Redis = RedisSetting(t, "redis://"+server.Addr)
	r.Start()
	t.Cleanup(r.Stop)
	return &RedisRig{r, server}
}

// SubmitMany submits n jobs of seven keys, numbered from first, and expects a receipt for each.
func (r *RedisRig) SubmitMany(first, n int) {
	r.T.Helper()
	var jobs []*nats.Msg
	for i := first; i < first+n; i++ {
		jobs = append(jobs, JobFor("pay", fmt.Sprint("k", i%7), fmt.Sprintf(`{"n":%d}`, i)))
	}
	FillTaken(r.T, r.NC, jobs)
}

// LimiterUp reports whether the metric weir_limiter_up is 1.
func (r *RedisRig) LimiterUp() bool {
	return strings.Contains(r.Get("/metrics"), "\nweir_limiter_up 1\n")
}

func Stamped(arrivals []fakeapi.Arrival) []bucket.Arrival {
	stamps := make([]bucket.Arrival, len(arrivals))
	for i, a := range arrivals {
		stamps[i] = bucket.Arrival{At: a.At, End: a.End}
	}
	return stamps
}

// Check checks all calls against limits, and the calls of each key against its rate and order.
func (r *RedisRig) Check(rate bucket.Rate, limits ...bucket.Limit) {
	r.T.Helper()
	all := r.API.All()
	r.CheckStarts(limits...)
	for _, l := range limits {
		r.hold(l.Name, all, l)
	}
	for _, key := range fakeapi.KeysOf(all) {
		of := fakeapi.OfKey(all, key)
		r.hold("key "+key, of, bucket.Limit{Name: "rate", Rate: &rate})
		r.CheckOrder(of)
	}
}

// RedisJitter is the jitter for a machine that runs a redis-server and many tests.
const RedisJitter = 20 * time.Millisecond

func (r *RedisRig) hold(what string, arrivals []fakeapi.Arrival, l bucket.Limit) {
	r.T.Helper()
	r.Referee().Hold(what, Stamped(arrivals), l, 2*RedisJitter) // blurs only the burst
}

func SharedRate(name string, count, burst int64) bucket.Limit {
	return bucket.Limit{Name: name, Rate: &bucket.Rate{Count: count, Per: time.Second, Burst: burst}}
}

var ThreeSeconds = bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 150, Window: bucket.Sliding, Per: 3 * time.Second}}

var RedisYAML = `
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
      - {name: spend, budget: 150.00/day, tz: ` + machine.Noon() + `, on_exhausted: dead_letter}
`
