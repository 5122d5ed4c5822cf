package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weir/bucket/fault"
	"weir/bucket/queue"
)

// script is what the api answers: now and then that it is too much. In runs that change the configuration it fails, too, and takes
// its time, so that calls are under way, and jobs wait for another one, under terms that are no more.
func (o *Options) script() string {
	steps := `{"every":50,"count":"all","do":"status=429; retry-after=1"}`
	if o.ConfigChanges > 0 {
		steps += `,{"every":41,"count":"all","do":"status=502"},{"every":7,"count":"all","do":"delay=700ms"}`
	}
	return "[" + steps + "]"
}

// latency of a call. In a fleet it is such that calls come close to how many may run at once.
func (o *Options) latency() string {
	if o.isFleet() {
		return "60ms"
	}
	return "30ms"
}

// configFile is the file that weir starts with.
const configFile = "weir.yaml"

// configure writes weir.yaml for an api at url.
func (s *stage) configure(url string) error {
	s.url = url
	first := firstTerms(s.o)
	s.timeline = timeline{{terms: first}}
	if err := os.WriteFile(filepath.Join(s.o.Dir, configFile), []byte(first.yaml(url, "0", s.o.isFleet())), 0o600); err != nil {
		return fmt.Errorf("write weir.yaml: %w", err)
	}
	return nil
}

// loads are the steady keys, one that gets more than it holds, and one that is called rarely.
func (o *Options) loads() []load {
	every := time.Duration(o.Keys) * time.Second / time.Duration(o.Jobs)
	loads := []load{
		{key: burstKey, every: 2 * time.Second, many: 2 * burstHolds, first: 1},
		{key: slowKey, every: slowPer + 2*jitter, many: 1, first: 3},
	}
	for _, key := range o.keys() {
		loads = append(loads, load{key: key, every: every, many: 1, first: 1})
	}
	return loads
}

// keys are the steady ones; in a fleet as many in each partition.
func (o *Options) keys() []string {
	var keys []string
	in := map[int]int{}
	for n := 1; len(keys) < o.Keys; n++ {
		key := fmt.Sprintf("k%d", n)
		if p := queue.PartitionOf(key, o.partitions()); !o.isFleet() || in[p] < o.Keys/o.partitions() {
			in[p]++
			keys = append(keys, key)
		}
	}
	return keys
}

// workerEnv are the settings of the one weir, under this name.
func (s *stage) workerEnv(instance string, order fault.Order) []string {
	env := append(s.plainWorkerEnv(instance, order), "WEIR_STATE_DIR="+s.state())
	s.mu.Lock()
	if s.boots > 0 {
		env = append(env, fault.BootEnv(fmt.Sprintf("%036d", s.boots)))
	}
	s.mu.Unlock()
	if s.o.Server == External {
		return append(env, "WEIR_NATS_URL="+s.urls[0], "WEIR_REPLICAS=1")
	}
	return append(env, "WEIR_DATA_DIR="+s.data(), "WEIR_NATS_LISTEN="+s.urls[0][len("nats://"):], "WEIR_NATS_AUTH="+s.o.Auth)
}

// plainWorkerEnv are those that do not say where its servers are.
func (s *stage) plainWorkerEnv(instance string, order fault.Order) []string {
	order.Bug = s.o.Bug
	return append([]string{
		"WEIR_CONFIG=" + filepath.Join(s.o.Dir, configFile), "WEIR_INSTANCE=" + instance, "WEIR_HTTP_LISTEN=" + s.http,
		"WEIR_HTTP_TOKEN=" + httpToken, "WEIR_PARTITIONS=" + strconv.Itoa(s.o.partitions()), "WEIR_SHUTDOWN_TIMEOUT=10s", "WEIR_DURABILITY=" + s.o.Durability,
	}, order.Env()...)
}
