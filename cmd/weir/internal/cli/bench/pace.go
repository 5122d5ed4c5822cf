package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"weir/cmd/weir/internal/cli"
)

// pacedAPIs have the rates that pace measures.
const pacedAPIs = `apis:
  slow:
    url: URL/slow
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 1000000, in_flight: 64}
  fast:
    url: URL/fast
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 1000000, in_flight: 64}
  many:
    url: URL/many
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1/s, capacity: 1000000, in_flight: 64}
`

// course is a rate that is kept for a while, on one key or on many.
type course struct {
	api  string
	rate int // a second and key
	keys int
}

func (c course) name() string {
	if c.keys == 1 {
		return fmt.Sprintf("%d/s on a key", c.rate)
	}
	return fmt.Sprintf("%d/s on each of %d keys", c.rate, c.keys)
}

// pace is how much of a rate is used while a backlog waits, and the fullest second of any key, as the API sees both: weir's, and that of a
// loop with golang.org/x/time/rate that has the jobs in memory.
func pace(ctx context.Context, s *stage, r *Report) error {
	if err := s.serve(ctx, pacedAPIs); err != nil {
		return err
	}
	s.sink.keep.Store(true)
	courses := []course{{"slow", 100, 1}, {"fast", 1000, 1}, {"many", 1, s.o.Keys}}
	r.Contenders = make([]Contender, 0, 2*len(courses))
	fullest := map[string]float64{}
	bar := cli.NewProgressBar(s.o.Talk, "rounds", 2*len(courses)*s.o.Rounds)
	defer bar.Clear()
	done := 0
	for _, c := range courses {
		both := []Contender{{Name: "weir, " + c.name()}, {Name: "x/time/rate, " + c.name()}}
		for range s.o.Rounds {
			for i, run := range []func(context.Context, course) error{s.paced, s.limited} {
				bar.Show(done)
				done++
				s.sink.taken()
				if err := run(ctx, c); err != nil {
					return fmt.Errorf("%s: %w", both[i].Name, err)
				}
				use, full := judge(s.sink.taken(), c.rate)
				both[i].Each = append(both[i].Each, use)
				fullest[both[i].Name] = max(fullest[both[i].Name], full)
			}
		}
		for i := range both {
			both[i].Unit, both[i].Figure = "of the rate", spread(both[i].Each)
			both[i].Also = []Also{{"the fullest second", "of the rate's count", fullest[both[i].Name]}}
		}
		r.Contenders = append(r.Contenders, both...)
		r.Ratios = append(r.Ratios, ratio(both[0], both[1]))
	}
	return nil
}

// jobs is how many make a round.
func (s *stage) jobs(c course) int { return c.rate * s.o.Seconds * c.keys }

// paced has weir call at the rate.
func (s *stage) paced(ctx context.Context, c course) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("a round did not end within %v", within))
	defer cancel()
	until := s.sink.calls.Load() + int64(s.jobs(c))
	l := load{subject: "weir.jobs." + c.api, jobs: s.jobs(c), keys: c.keys, body: s.o.Body, path: true}
	if err := l.publish(ctx, s.js); err != nil {
		return err
	}
	return s.sink.await(ctx, until)
}

// limited has a limiter of each key call at the rate.
func (s *stage) limited(ctx context.Context, c course) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("a round did not end within %v", within))
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callsAtOnce}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	until := s.sink.calls.Load() + int64(s.jobs(c))
	body := bytes.Repeat([]byte("x"), s.o.Body)
	slots := make(chan struct{}, callsAtOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for key := range c.keys {
		running.Go(func() {
			limiter := rate.NewLimiter(rate.Limit(c.rate), 1)
			for range c.rate * s.o.Seconds {
				if limiter.Wait(ctx) != nil {
					return
				}
				slots <- struct{}{}
				running.Go(func() {
					defer func() { <-slots }()
					b := bareLoop{client: client, url: s.sink.url + "/" + c.api + "/key-" + strconv.Itoa(key)}
					_ = b.call(ctx, body) // a call that fails is missed below
				})
			}
		})
	}
	return s.sink.await(ctx, until)
}

// judge gives how much of the rate was used, over all keys, and the most calls of a key in any second, both by the rate's count.
func judge(times map[string][]time.Time, perSecond int) (use, fullest float64) {
	keys := 0
	for path, at := range times {
		if strings.Count(path, "/") < 2 || len(at) < 2 {
			continue
		}
		keys++
		use += float64(len(at)-1) / at[len(at)-1].Sub(at[0]).Seconds() / float64(perSecond)
		first := 0
		for last := range at {
			for at[last].Sub(at[first]) >= time.Second {
				first++
			}
			fullest = max(fullest, float64(last-first+1)/float64(perSecond))
		}
	}
	return use / float64(max(1, keys)), fullest
}
