// Command sides compares builds of weir from outside, in alternating rounds of one run: jobs per second, CPU and bytes
// written for each job, the time from the API's answer to the reply, and the time from a start after a kill to the
// first call. The medians are those of the ratios to the first build, round by round, because a machine's speed changes
// during a run.
//
//	go run ./sides -rounds 20 -jobs 2000 before=bin/weir-before after=bin/weir-after
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
	"weir/cmd/internal/serving"
)

const config = `apis:
  small: {url: URL/100, idempotency: KEY, bucket: BUCKET}
  once: {url: URL/100, bucket: BUCKET}
  large: {url: URL/65536, idempotency: KEY, bucket: BUCKET}
  largeonce: {url: URL/65536, bucket: BUCKET}
  again: {url: URL/again, idempotency: KEY, retry: {min: 200ms, max: 200ms}, breaker: {failures: 0}, bucket: BUCKET}
  dead: {url: URL/dead, breaker: {failures: 0}, bucket: BUCKET}
  slow: {url: URL/slow, idempotency: KEY, bucket: BUCKET}
`

// configFor returns the configuration with the apis, for any build.
func configFor(url string) string {
	return strings.NewReplacer(
		"URL", url, "KEY", "{header: Idempotency-Key}", "BUCKET", "{rate: 100000/s, capacity: 1000000, in_flight: 64}",
	).Replace(config)
}

// api answers the calls of all builds.
type api struct {
	url   string
	calls atomic.Int64
	mu    sync.Mutex
	seen  map[string]bool
	at    map[string]time.Time // when the answer was sent, by job id
	first atomic.Pointer[chan time.Time]
}

func startAPI() (*api, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &api{url: "http://" + l.Addr().String(), seen: map[string]bool{}, at: map[string]time.Time{}}
	go func() { log.Fatal((&http.Server{Handler: a, ReadHeaderTimeout: time.Minute}).Serve(l)) }()
	return a, nil
}

var filler = []byte(strings.Repeat("x", 1<<16))

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := a.first.Swap(nil); c != nil {
		*c <- time.Now()
	}
	body, _ := io.ReadAll(r.Body)
	id, _, _ := strings.Cut(string(body), " ")
	kind, _, _ := strings.Cut(r.URL.Path[1:], "/")
	switch kind {
	case "again":
		a.mu.Lock()
		again := !a.seen[id]
		a.seen[id] = true
		a.mu.Unlock()
		if again {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(filler[:100])
	case "dead":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(filler[:100])
	case "slow":
		<-time.After(time.Second)
		_, _ = w.Write(filler[:100])
	default:
		n, _ := strconv.Atoi(kind)
		if strings.HasPrefix(id, "timed") {
			a.mu.Lock()
			a.at[id] = time.Now()
			a.mu.Unlock()
		}
		_, _ = w.Write(filler[:n])
	}
	a.calls.Add(1)
}

// side is one running build of weir.
type side struct {
	name string
	weir *serving.Worker
	nc   *nats.Conn
	js   jetstream.JetStream
}

func (s *side) connect() (err error) {
	s.nc, err = nats.Connect("nats://"+s.weir.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	const under = 1000
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(under),
		jetstream.WithPublishAsyncTimeout(time.Minute))
	return err
}

// used is what a process has used so far.
type used struct {
	cpu                    time.Duration
	written, wrote, writes float64
}

func (s *side) used() (u used) {
	pid := s.weir.PID()
	u.cpu, _ = contest.CPU(pid)
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "write_bytes":
			u.written = n
		case "wchar":
			u.wrote = n
		case "syscw":
			u.writes = n
		}
	}
	return u
}

var number atomic.Int64

func (s *side) publish(ctx context.Context, api string, n int) error {
	for range n {
		id := number.Add(1)
		_, err := s.js.PublishMsgAsync(&nats.Msg{
			Subject: fmt.Sprintf("weir.jobs.%s.k%d", api, id%int64(*keys)), Data: fmt.Appendf(nil, "%d %0200d", id, 0),
		}, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *side) last(ctx context.Context, stream string) (uint64, error) {
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return st.CachedInfo().State.LastSeq, nil
}

// settledIn returns the stream that shows when all jobs of an api have ended.
func settledIn(api string) string {
	if api == "dead" {
		return "WEIR_DEAD"
	}
	return "WEIR_RESULTS"
}

// round runs n jobs of an api, and returns what they took.
func (s *side) round(ctx context.Context, api string, n int) (m map[string]float64, err error) {
	stream := settledIn(api)
	before, err := s.last(ctx, stream)
	if err != nil {
		return nil, err
	}
	u, start := s.used(), time.Now()
	if err := s.publish(ctx, api, n); err != nil {
		return nil, err
	}
	for {
		now, err := s.last(ctx, stream)
		if err != nil {
			return nil, err
		}
		if now >= before+uint64(n) {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	took := time.Since(start)
	<-time.After(300 * time.Millisecond) // until records and deletions are done
	v := s.used()
	each := func(x float64) float64 { return x / float64(n) }
	return map[string]float64{
		"jobs/s": float64(n) / took.Seconds(), "cpu us/job": each(float64(v.cpu-u.cpu) / 1e3),
		"disk B/job":  each(v.written - u.written),
		"wchar B/job": each(v.wrote - u.wrote), "writes/job": each(v.writes - u.writes),
	}, nil
}

// replies runs n jobs, one every apart, and returns the median and the 90th percentile of the time from the api's
// answer to the reply.
func (s *side) replies(
	ctx context.Context, a *api, api string, n int, apart time.Duration,
) (map[string]float64, error) {
	inbox := s.nc.NewInbox()
	type got struct {
		id string
		at time.Time
	}
	replies := make(chan got, n)
	sub, err := s.nc.Subscribe(inbox+".*", func(m *nats.Msg) { replies <- got{m.Subject[len(inbox)+1:], time.Now()} })
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	tick := time.NewTicker(apart)
	defer tick.Stop()
	for range n {
		id := fmt.Sprintf("timed%d", number.Add(1))
		_, err := s.js.PublishMsgAsync(&nats.Msg{
			Subject: fmt.Sprintf("weir.jobs.%s.k%d", api, number.Load()%int64(*keys)),
			Data:    fmt.Appendf(nil, "%s %0200d", id, 0),
			Header:  nats.Header{"Weir-Reply-To": {inbox + "." + id}},
		})
		if err != nil {
			return nil, err
		}
		<-tick.C
	}
	var all []float64
	for range n {
		select {
		case g := <-replies:
			a.mu.Lock()
			all = append(all, float64(g.at.Sub(a.at[g.id]))/1e6)
			a.mu.Unlock()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	slices.Sort(all)
	return map[string]float64{"reply p50 ms": all[n/2], "reply p90 ms": all[n*9/10]}, nil
}

// kill kills weir while calls are under way, and returns how long after the next start the first call came.
func (s *side) kill(ctx context.Context, a *api, jobs int) (map[string]float64, error) {
	if err := s.publish(ctx, "slow", jobs); err != nil {
		return nil, err
	}
	<-time.After(200 * time.Millisecond)
	s.weir.Kill()
	<-time.After(200 * time.Millisecond)
	first := make(chan time.Time, 1)
	a.first.Store(&first)
	start := time.Now()
	if err := s.weir.Start(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.weir.Tail())
	}
	ready := time.Since(start)
	cpu := s.used().cpu
	var at time.Time
	select {
	case at = <-first:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	left, since := uint64(0), time.Now()
	for { // until the queue is empty, or has not changed for 3 s: a marker may stay until the next start
		n, err := s.queued(ctx)
		if err != nil || n != left {
			left, since = n, time.Now()
		}
		if n == 0 && err == nil || time.Since(since) > 3*time.Second {
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		<-time.After(50 * time.Millisecond)
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	return map[string]float64{"first call ms": ms(at.Sub(start)), "ready ms": ms(ready), "cpu at ready ms": ms(cpu)}, nil
}

// queued returns how many messages of jobs are left.
func (s *side) queued(ctx context.Context) (n uint64, err error) {
	for p := range 8 {
		st, err := s.js.Stream(ctx, fmt.Sprintf("WEIR_slow_%d", p))
		if err != nil {
			return 0, err
		}
		n += st.CachedInfo().State.Msgs
	}
	return n - min(n, 8), nil // each stream has its owner's epoch
}

const usualScenes = "small,once,large,largeonce,again,dead,reply,replylarge"

var (
	rounds      = flag.Int("rounds", 10, "rounds")
	jobs        = flag.Int("jobs", 2000, "jobs of a round")
	keys        = flag.Int("keys", 64, "number of keys that the jobs are spread over")
	dir         = flag.String("dir", "", "where the stores are; they should be on a real disk")
	scenes      = flag.String("scenes", usualScenes, "what is measured; also kill")
	environment = flag.String("env", "", "further settings of weir")
	kept        = flag.Int("history", 10000, "jobs done before the first kill")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	ctx := context.Background()
	a, err := startAPI()
	if err != nil {
		return err
	}
	stage, err := contest.NewStage(*dir, "weir-sides-")
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err != nil {
		return err
	}
	config := stage.Path("weir.yaml")
	if err := os.WriteFile(config, []byte(configFor(a.url)), 0o600); err != nil {
		return err
	}
	var sides []*side
	for _, arg := range flag.Args() {
		name, binary, _ := strings.Cut(arg, "=")
		if binary, err = filepath.Abs(binary); err != nil {
			return err
		}
		s := &side{name: name, weir: &serving.Worker{
			Path: binary, Dir: stage.Dir, NATS: "127.0.0.1:0", HTTP: "127.0.0.1:0", Attributes: machine.ChildAttributes,
			Env: append([]string{
				"WEIR_CONFIG=" + config, "WEIR_DATA_DIR=" + stage.Path(name), "WEIR_INSTANCE=side", "WEIR_NATS_AUTH=open",
			}, strings.Fields(*environment)...),
			Fail: func(err error) { log.Printf("%s: %v", name, err) }, // the round fails
		}}
		stage.Later(s.weir.Stop)
		if err := s.weir.Start(ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, s.weir.Tail())
		}
		sides = append(sides, s)
		if err := s.connect(); err != nil {
			return err
		}
	}
	values := map[string]map[string][]float64{} // by scene and unit, then by side: the value of each round
	add := func(scene string, s *side, m map[string]float64) {
		for unit, v := range m {
			k := scene + " " + unit
			if values[k] == nil {
				values[k] = map[string][]float64{}
			}
			values[k][s.name] = append(values[k][s.name], v)
		}
	}
	list := strings.Split(*scenes, ",")
	if slices.Contains(list, "kill") {
		for _, s := range sides {
			if _, err := s.round(ctx, "small", *kept); err != nil {
				return err
			}
		}
	}
	for i := range *rounds + 1 {
		for _, scene := range list {
			order := slices.Clone(sides)
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, s := range order {
				var m map[string]float64
				var err error
				c, cancel := context.WithTimeout(ctx, 3*time.Minute)
				switch scene {
				case "kill":
					m, err = s.kill(c, a, 1000)
				case "reply":
					m, err = s.replies(c, a, "once", 100, 3*time.Millisecond)
				case "replylarge":
					m, err = s.replies(c, a, "largeonce", 50, 5*time.Millisecond)
				case "large", "largeonce":
					m, err = s.round(c, scene, *jobs/4)
				case "again", "dead":
					m, err = s.round(c, scene, *jobs/2)
				default:
					m, err = s.round(c, scene, *jobs)
				}
				cancel()
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, scene, err)
				}
				if i > 0 { // the first round warms up
					add(scene, s, m)
				}
			}
		}
		if i > 0 && (i%5 == 0 || i == *rounds) {
			fmt.Fprintf(os.Stdout, "--- after %d rounds, %s\n", i, time.Now().UTC().Format(time.TimeOnly))
			report(values, sides)
		}
	}
	return nil
}

func report(values map[string]map[string][]float64, sides []*side) {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(os.Stdout, "%-26s", k)
		base := values[k][sides[0].name]
		for i, s := range sides {
			v := values[k][s.name]
			fmt.Fprintf(os.Stdout, " %s %10.2f", s.name, contest.SpreadOf(v).Median)
			if i > 0 {
				ratios := contest.Ratios(v, base)
				slices.Sort(ratios)
				n := len(ratios)
				if n > 0 {
					fmt.Fprintf(os.Stdout, "  ratio %.3f (quartiles %.3f to %.3f)", contest.SpreadOf(ratios).Median, ratios[n/4], ratios[n*3/4])
				}
			}
		}
		fmt.Fprintln(os.Stdout)
	}
}
