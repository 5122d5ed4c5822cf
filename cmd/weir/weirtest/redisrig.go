package weirtest

import (
	"fmt"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"

	"github.com/nats-io/nats.go"
)

// RedisSetting returns the address as a setting.
func RedisSetting(t *testing.T, url string) secret.Value {
	t.Helper()
	return program.Settings(t, map[string]string{"WEIR_REDIS_URL": url, "WEIR_CONFIG": ""}).RedisURL
}

// RedisRig is a weir whose limits are counted in a real Redis.
type RedisRig struct {
	*Rig
	Server *servers.RedisServer
}

func NewRedisRig(t *testing.T, o fakeapi.Options, yaml string) *RedisRig {
	t.Helper()
	o.Key = fakeapi.KeyFrom{Segment: -1}
	server := servers.StartRedis(t)
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
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", i%7), fmt.Sprintf(`{"n":%d}`, i)))
	}
	producer.FillTaken(r.T, r.NC, jobs)
}

// LimiterUp reports whether the metric weir_limiter_up is 1.
func (r *RedisRig) LimiterUp() bool {
	return strings.Contains(r.HTTP().Get("/metrics"), "\nweir_limiter_up 1\n")
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
		r.Referee().CheckOrder(of)
	}
}

func (r *RedisRig) hold(what string, arrivals []fakeapi.Arrival, l bucket.Limit) {
	r.T.Helper()
	r.Referee().Hold(what, referee.Stamped(arrivals), l, 2*referee.RedisJitter) // blurs only the burst
}

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
