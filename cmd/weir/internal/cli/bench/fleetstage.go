package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
	"weir/cmd/internal/serving"
)

// fleetNodes is how many nats-servers a fleet has, and how many copies each of its streams.
const fleetNodes = 3

// fleetPartitions is how many partitions each API of a fleet has. They can be divided evenly among 1, 2 and 5 replicas.
const fleetPartitions = 10

// fleetAPIs are the APIs of a fleet. All keys of each share a limit in Redis, which counts each call and holds none
// back. Jobs of "steady" are called at a pace, so that jobs of each key wait while a replica is killed. Each call names
// its replica.
const fleetAPIs = `apis:
  busy:
    url: URL/busy
    idempotency: {header: Idempotency-Key}
    headers: {` + contest.CallerHeader + `: "${env:` + callerVariable + `}"}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: 64}
    limits: [{name: busy, in_flight: 100000}]
  steady:
    url: URL/steady
    idempotency: {header: Idempotency-Key}
    headers: {` + contest.CallerHeader + `: "${env:` + callerVariable + `}"}
    bucket: {rate: 4/s, capacity: 1000000, in_flight: 64}
    limits: [{name: steady, in_flight: 100000}]
`

// callerVariable is the variable with a replica's name.
const callerVariable = "BENCH_REPLICA"

// fleetStage is a NATS cluster, a Redis, and replicas of weir that come and go.
type fleetStage struct {
	*stage
	cluster  contest.Cluster
	redis    *contest.Redis
	replicas []*replica
	producer *contest.Role
}

// replica is one weir of a fleet.
type replica struct {
	*serving.Worker
	name string
	up   bool
}

// fleetStage starts the cluster, Redis and the producer. It prepares replicas and starts none.
func (s *stage) fleetStage(ctx context.Context, replicas int) (*fleetStage, error) {
	f := &fleetStage{stage: s}
	var err error
	if f.redis, err = s.Redis(ctx, "redis", "everysec"); err != nil {
		return nil, err
	}
	if f.cluster, err = s.Cluster(ctx, fleetNodes, s.o.Durability); err != nil {
		return nil, err
	}
	file := s.Path("fleet.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(fleetAPIs, "URL", s.api.URL)), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of the measurement: %w", err)
	}
	for i := range replicas {
		name := strconv.Itoa(i + 1)
		f.replicas = append(f.replicas, &replica{name: name, Worker: &serving.Worker{
			Dir: s.Dir, HTTP: "127.0.0.1:0", Fail: s.fail, Attributes: machine.ChildAttributes,
			Env: []string{
				"WEIR_CONFIG=" + file, "WEIR_INSTANCE=bench-" + name, callerVariable + "=" + name, "WEIR_SECRETS=" + callerVariable,
				"WEIR_STATE_DIR=" + s.Path("state-"+name), // of its own, as on a machine of its own
				"WEIR_NATS_URL=" + f.cluster.URL, "WEIR_REPLICAS=" + strconv.Itoa(fleetNodes),
				"WEIR_PARTITIONS=" + strconv.Itoa(fleetPartitions), "WEIR_REDIS_URL=redis://" + f.redis.Addr,
			},
		}})
	}
	s.Later(func() error { return f.stop(f.replicas) })
	f.producer, err = s.Role(ctx, "nats", contest.Settings{Store: f.cluster.URL, Queue: "weir.jobs"})
	return f, err
}

// resize stops replicas, or starts them, until n are running. It returns when each has its part of the partitions.
func (f *fleetStage) resize(ctx context.Context, n int) error {
	if err := f.stop(f.replicas[n:]); err != nil {
		return err
	}
	for _, r := range f.replicas[:n] {
		if r.up {
			continue
		}
		if err := r.Start(ctx); err != nil {
			return fmt.Errorf("replica %s: %w\nthe last lines of its log:\n%s", r.name, err, r.Tail())
		}
		r.up = true
	}
	return f.awaitShares(ctx, f.replicas[:n])
}

// stop stops replicas in order and at once. It is no error if they are not running.
func (f *fleetStage) stop(replicas []*replica) error {
	var stopping sync.WaitGroup
	failed := make([]error, len(replicas))
	for i, r := range replicas {
		stopping.Go(func() { failed[i] = r.Stop() })
	}
	stopping.Wait()
	for _, r := range replicas {
		r.up = false
	}
	return errors.Join(failed...)
}

// kill kills a replica with kill -9.
func (f *fleetStage) kill(name string) error {
	for _, r := range f.replicas {
		if r.name == name && r.up {
			r.Kill()
			r.up = false
			return nil
		}
	}
	return fmt.Errorf("no running replica has the name %q", name)
}

// sharesWithin bounds the time until partitions are divided evenly, and lookEvery is the time between two looks.
const (
	sharesWithin = 2 * time.Minute
	lookEvery    = 100 * time.Millisecond
)

// awaitShares waits until each replica has an even share of each API's partitions.
func (f *fleetStage) awaitShares(ctx context.Context, replicas []*replica) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sharesWithin,
		fmt.Errorf("%d replicas did not divide the partitions evenly within %v", len(replicas), sharesWithin))
	defer cancel()
	return every(ctx, func() (bool, error) {
		for _, r := range replicas {
			metrics, err := r.metrics(ctx)
			if err != nil {
				return false, err
			}
			for _, owned := range partitionsOwned(metrics) {
				if owned < fleetPartitions/len(replicas) || owned > (fleetPartitions+len(replicas)-1)/len(replicas) {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

// every calls is each lookEvery until it reports true or fails, or ctx ends.
func every(ctx context.Context, is func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if done, err := is(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mostMetrics bounds the bytes of a replica's metrics.
const mostMetrics = 4 << 20

// metrics returns a replica's metrics.
func (r *replica) metrics(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.HTTP+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("the metrics of replica %s: %w", r.name, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the metrics of replica %s: %w", r.name, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostMetrics))
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New("it answered " + res.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("the metrics of replica %s: %w", r.name, err)
	}
	return text, nil
}

// partitionsOwned returns how many partitions a replica has of each API, by its metrics. An API without a figure has 0.
func partitionsOwned(metrics []byte) map[string]int {
	owned := map[string]int{"busy": 0, "steady": 0}
	for line := range bytes.Lines(metrics) {
		rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(`weir_partitions_owned{api="`))
		if !ok {
			continue
		}
		api, value, _ := bytes.Cut(rest, []byte(`"} `))
		n, err := strconv.ParseFloat(string(value), 64)
		if err == nil {
			owned[string(api)] = int(n)
		}
	}
	return owned
}
