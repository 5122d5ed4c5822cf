package bench

import (
	"context"
	"errors"
	"time"

	"weir/cmd/internal/contest"
)

// The load of a takeover: each key has jobs for four seconds when the first is called.
const (
	steadyKeys = 40
	steadyJobs = 16 // of each key
)

// takeover kills the replica that calls the most keys, with kill -9, while jobs of each key wait. It returns how many
// seconds each of that replica's keys waited for its next call.
func (f *fleetStage) takeover(ctx context.Context) ([]float64, error) {
	load := contest.Order{Do: "publish", Queue: "steady", Jobs: steadyKeys * steadyJobs, Keys: steadyKeys, Body: f.o.Body}
	victim, at := "", time.Time{}
	calls, err := f.api.Round(ctx, "/steady", load.Jobs, within, func(ctx context.Context) (int64, error) {
		published, err := f.producer.Order(ctx, load)
		if err != nil {
			return 0, err
		}
		var soFar contest.Calls
		err = every(ctx, func() (_ bool, err error) {
			soFar, err = f.api.SoFar(ctx)
			return err == nil && eachCalled(soFar, steadyKeys), err
		})
		if err != nil {
			return 0, err
		}
		victim, at = busiest(soFar, steadyKeys), time.Now()
		return published.Began, f.kill(victim)
	})
	if err != nil {
		return nil, err
	}
	waits := waitsAfter(calls, steadyKeys, victim, at.UnixNano())
	if len(waits) == 0 {
		return nil, errors.New("no job of the killed replica's keys was left: this machine is too slow for a measurement")
	}
	return waits, nil
}

// As with a producer, job n has key n modulo the number of keys.

// eachCalled reports whether a job of each key was called.
func eachCalled(c contest.Calls, keys int) bool {
	called := make([]bool, keys)
	left := keys
	for job, at := range c.Times {
		if at > 0 && !called[job%keys] {
			called[job%keys] = true
			left--
		}
	}
	return left == 0
}

// owners returns which caller made the last call of each key before a time, "" if none did.
func owners(c contest.Calls, keys int, before int64) []string {
	owner, last := make([]string, keys), make([]int64, keys)
	for job, at := range c.Times {
		if at > last[job%keys] && at < before && job < len(c.By) {
			owner[job%keys], last[job%keys] = c.By[job], at
		}
	}
	return owner
}

// busiest returns the caller that calls the most keys, "" if no call names its caller.
func busiest(c contest.Calls, keys int) (most string) {
	count := map[string]int{}
	for _, owner := range owners(c, keys, time.Now().UnixNano()) {
		if owner != "" {
			count[owner]++
			if count[owner] > count[most] {
				most = owner
			}
		}
	}
	return most
}

// waitsAfter returns how many seconds each key of a caller waited, from the time at which that caller was killed to the
// next call by another. A key of which no job was left is not among them.
func waitsAfter(c contest.Calls, keys int, killed string, at int64) (waits []float64) {
	for key, owner := range owners(c, keys, at) {
		next := int64(0)
		for job := key; job < len(c.Times) && owner == killed; job += keys {
			if when := c.Times[job]; when > at && c.By[job] != killed && (next == 0 || when < next) {
				next = when
			}
		}
		if next > 0 {
			waits = append(waits, time.Duration(next-at).Seconds())
		}
	}
	return waits
}
