package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
)

// latency of a call. In a fleet it is such that calls come close to how many may run at once.
func (s *stage) latency() string {
	if s.o.isFleet() {
		return "60ms"
	}
	return "30ms"
}

// configure writes weir.yaml for an api at url.
func (s *stage) configure(url string) error {
	limits := fmt.Sprintf("\n    limits: [{name: account, rate: %d/s, burst: 1}]", s.accountRate())
	switch {
	case s.o.Takeovers > 0:
		limits = "" // without Redis two weirs cannot share one
	case s.o.isFleet():
		limits = fmt.Sprintf("\n    limits: [{name: account, rate: %d/s, burst: 1}, {name: concurrent, in_flight: %d}]\n    headers: {%s: \"${env:%s}\"}",
			s.accountRate(), fleetInFlight, nameHeader, nameVariable)
	}
	idempotency := ""
	if s.o.Idempotent {
		idempotency = "idempotency: {header: Idempotency-Key}\n    "
	}
	yaml := fmt.Sprintf(`apis:
  %s:
    url: %s/v1
    price: 0.01
    timeout: %s
    jitter: %s
    %sbucket: {rate: %d/s, capacity: 20000, in_flight: 4}%s
    keys:
      %s: {rate: %d/s, capacity: %d}
      %s: {rate: 1/%s, capacity: 20}
    retry: {attempts: 1000, min: 100ms, max: 1s, hold: key}
`, apiName, url, callTimeout, jitter, idempotency, s.o.Rate, limits, burstKey, burstRate, burstHolds, slowKey, slowPer)
	if err := os.WriteFile(filepath.Join(s.o.Dir, "weir.yaml"), []byte(yaml), 0o600); err != nil {
		return fmt.Errorf("write weir.yaml: %w", err)
	}
	return nil
}

func (s *stage) accountRate() int { return max(accountRate, 2*s.o.Jobs) }

// loads are the steady keys, one that gets more than it holds, and one that is called rarely.
func (s *stage) loads() []load {
	every := time.Duration(s.o.Keys) * time.Second / time.Duration(s.o.Jobs)
	loads := []load{
		{key: burstKey, every: 2 * time.Second, many: 2 * burstHolds, first: 1},
		{key: slowKey, every: slowPer + 2*jitter, many: 1, first: 3},
	}
	for _, key := range s.keys() {
		loads = append(loads, load{key: key, every: every, many: 1, first: 1})
	}
	return loads
}

// keys are the steady ones; in a fleet as many in each partition.
func (s *stage) keys() []string {
	var keys []string
	in := map[int]int{}
	for n := 1; len(keys) < s.o.Keys; n++ {
		key := fmt.Sprintf("k%d", n)
		if p := bucket.PartitionOf(key, s.o.partitions()); !s.o.isFleet() || in[p] < s.o.Keys/s.o.partitions() {
			in[p]++
			keys = append(keys, key)
		}
	}
	return keys
}

// workerEnv are the settings of the one weir, under this name.
func (s *stage) workerEnv(instance string, order fault.Order) []string {
	env := s.plainWorkerEnv(instance, order)
	if s.o.Server == External {
		return append(env, "WEIR_NATS_URL="+s.urls[0], "WEIR_REPLICAS=1")
	}
	return append(env, "WEIR_DATA_DIR="+s.data(), "WEIR_NATS_LISTEN="+s.urls[0][len("nats://"):])
}

// plainWorkerEnv are those that do not say where its servers are.
func (s *stage) plainWorkerEnv(instance string, order fault.Order) []string {
	order.Bug = s.o.Bug
	return append([]string{
		"WEIR_CONFIG=" + filepath.Join(s.o.Dir, "weir.yaml"), "WEIR_INSTANCE=" + instance, "WEIR_HTTP_LISTEN=",
		"WEIR_PARTITIONS=" + strconv.Itoa(s.o.partitions()), "WEIR_SHUTDOWN_TIMEOUT=10s", "WEIR_DURABILITY=" + s.o.Durability,
	}, order.Env()...)
}

// rates are the limits of each key, and of all together under "".
func (s *stage) rates() map[string]bucket.Rate {
	rates := map[string]bucket.Rate{
		burstKey: {Count: burstRate, Per: time.Second, Burst: 1},
		slowKey:  {Count: 1, Per: slowPer, Burst: 1},
	}
	if s.o.Takeovers == 0 {
		rates[""] = bucket.Rate{Count: int64(s.accountRate()), Per: time.Second, Burst: 1}
	}
	for _, key := range s.keys() {
		rates[key] = bucket.Rate{Count: int64(s.o.Rate), Per: time.Second, Burst: 1}
	}
	return rates
}
