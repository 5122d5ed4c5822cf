//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/time/rate"
	"weir/cmd/internal/contest"
)

// asynqLook is how often a worker looks for jobs in an empty queue. Asynq's default is 1 s. A shorter time costs
// nothing here, because the worker rests between its turns.
const asynqLook = 50 * time.Millisecond

// asynqBurst is the burst of the limiter in Asynq's documentation ("Rate Limiting" in its wiki), as a multiple of the
// rate: 30 at 10/s.
const asynqBurst = 3

func asynqRole(_ context.Context, s contest.Settings) (contest.Do, error) {
	at := asynq.RedisClientOpt{Addr: s.Store, PoolSize: s.AtOnce}
	if !s.Worker {
		client := asynq.NewClient(at)
		return func(ctx context.Context, o contest.Order) error { return enqueueAsynq(ctx, client, s.AtOnce, o) }, nil
	}
	w := &asynqWorker{at: at, s: s, caller: contest.NewCaller(s.API, s.AtOnce)}
	if s.Rate > 0 {
		w.limiter = rate.NewLimiter(rate.Limit(s.Rate), asynqBurst*s.Rate)
	}
	return w.do, nil
}

// enqueueAsynq enqueues jobs one by one, many at once, because Asynq has no call for several jobs.
func enqueueAsynq(ctx context.Context, client *asynq.Client, atOnce int, o contest.Order) error {
	var next atomic.Int64
	var running sync.WaitGroup
	failed := make(chan error, atOnce)
	for range atOnce {
		running.Go(func() {
			for {
				job := int(next.Add(1)) - 1
				if job >= o.Jobs {
					return
				}
				if _, err := client.EnqueueContext(ctx, asynq.NewTask("call", contest.Body(job, o.Body)), asynq.Queue(o.Queue)); err != nil {
					failed <- fmt.Errorf("enqueue job %d: %w", job, err)
					return
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// asynqWorker is a server of Asynq. Each turn makes a new one.
type asynqWorker struct {
	at      asynq.RedisClientOpt
	s       contest.Settings
	caller  contest.Caller
	limiter *rate.Limiter // nil: none
	server  *asynq.Server
}

func (w *asynqWorker) do(_ context.Context, o contest.Order) error {
	if o.Do == "rest" {
		w.server.Shutdown()
		return nil
	}
	w.server = asynq.NewServer(w.at, asynq.Config{
		Concurrency: w.s.AtOnce, Queues: map[string]int{w.s.Queue: 1}, TaskCheckInterval: asynqLook, LogLevel: asynq.ErrorLevel,
		// A job that the limiter sends back has not failed. RetryDelayFunc decides when it comes again.
		IsFailure: func(err error) bool { return !errors.Is(err, errLimited) },
		RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
			if errors.Is(err, errLimited) {
				return time.Duration(rand.IntN(10)) * time.Second
			}
			return asynq.DefaultRetryDelayFunc(n, err, t)
		},
	})
	return w.server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		if w.limiter != nil && !w.limiter.Allow() {
			return errLimited
		}
		return w.caller.Call(ctx, t.Payload())
	}))
}

var errLimited = errors.New("the limiter sends the job back")
