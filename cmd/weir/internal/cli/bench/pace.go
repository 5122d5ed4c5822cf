package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"weir/cmd/internal/contest"
	"weir/cmd/weir/internal/cli"
)

// pacedAPIs are the APIs with the rates that pace measures.
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

// course is a rate that is measured for one round, with one key or with many.
type course struct {
	api  string
	rate int // calls a second for each key
	keys int
}

func (c course) name() string {
	if c.keys == 1 {
		return fmt.Sprintf("%d/s on a key", c.rate)
	}
	return fmt.Sprintf("%d/s on each of %d keys", c.rate, c.keys)
}

// pace measures which part of a rate is used while a backlog waits, and the fullest second of any key, both as the API
// sees them. It measures weir, and a loop with golang.org/x/time/rate that has its jobs in memory.
func pace(ctx context.Context, s *stage, r *Report) error {
	w, err := s.serve(ctx, "weir", pacedAPIs)
	if err != nil {
		return err
	}
	paced := func(ctx context.Context, c course) (contest.Calls, error) {
		return s.calls(ctx, w.producer, "/"+c.api, s.load(c.api, s.jobs(c), c.keys))
	}
	courses := []course{{"slow", 100, 1}, {"fast", 1000, 1}, {"many", 1, s.o.Keys}}
	r.Contenders = make([]Contender, 0, 2*len(courses))
	fullest := map[string]float64{}
	bar := cli.NewProgressBar(s.o.Talk, "rounds", 2*len(courses)*s.o.Rounds)
	defer bar.Clear()
	done := 0
	for _, c := range courses {
		both := []Contender{{Name: "weir, " + c.name()}, {Name: "x/time/rate, " + c.name()}}
		for range s.o.Rounds {
			for i, run := range []func(context.Context, course) (contest.Calls, error){paced, s.limited} {
				bar.Show(done)
				done++
				ctx, cancel := context.WithTimeoutCause(ctx, within, errTooLong)
				calls, err := run(ctx, c)
				cancel()
				if err != nil {
					return fmt.Errorf("%s: %w", both[i].Name, err)
				}
				use, full := judge(calls.Times, c)
				both[i].Each = append(both[i].Each, use)
				fullest[both[i].Name] = max(fullest[both[i].Name], full)
			}
		}
		for i := range both {
			both[i].Unit, both[i].Figure = "of the rate", contest.SpreadOf(both[i].Each)
			both[i].Also = []Also{{"the fullest second", "of the rate's count", fullest[both[i].Name]}}
		}
		r.Contenders = append(r.Contenders, both...)
		r.Ratios = append(r.Ratios, ratio(both[0], both[1]))
	}
	return nil
}

// jobs returns how many jobs a round of a course has.
func (s *stage) jobs(c course) int { return c.rate * s.o.Seconds * c.keys }

// limited calls the API at a course's rate, with one limiter for each key. As with a producer, job n has key n modulo
// the number of keys.
func (s *stage) limited(ctx context.Context, c course) (contest.Calls, error) {
	caller := contest.NewCaller(s.api.URL+"/"+c.api, callsAtOnce)
	slots := make(chan struct{}, callsAtOnce)
	return s.api.Round(ctx, "/"+c.api, s.jobs(c), within, func(ctx context.Context) (int64, error) {
		began := time.Now().UnixNano()
		var running sync.WaitGroup
		for key := range c.keys {
			running.Go(func() {
				limiter := rate.NewLimiter(rate.Limit(c.rate), 1)
				for job := key; job < s.jobs(c); job += c.keys {
					if limiter.Wait(ctx) != nil {
						return
					}
					slots <- struct{}{}
					running.Go(func() {
						defer func() { <-slots }()
						// If a call fails, the API misses it and the round fails.
						_ = caller.Call(ctx, contest.Body(job, s.o.Body))
					})
				}
			})
		}
		running.Wait()
		return began, nil
	})
}

// judge returns which part of the rate was used over all keys, and the most calls of any key within a second. Both are
// fractions of the rate.
func judge(times []int64, c course) (use, fullest float64) {
	for key := range c.keys {
		var at []int64
		for job := key; job < len(times); job += c.keys {
			at = append(at, times[job])
		}
		slices.Sort(at)
		use += contest.PerSecond(len(at)-1, at[len(at)-1]-at[0]) / float64(c.rate) / float64(c.keys)
		fullest = max(fullest, float64(contest.Fullest(at, time.Second))/float64(c.rate))
	}
	return use, fullest
}
