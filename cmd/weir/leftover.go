package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
)

// jobsLeft counts the jobs, by api, that wait in queues of apis which are not configured: nobody calls them.
func jobsLeft(ctx context.Context, js jetstream.JetStream, c *config.Config) (map[string]int, error) {
	configured := map[string]struct{}{}
	for i := range c.APIs {
		configured[c.APIs[i].Name] = struct{}{}
	}
	found := map[string]int{}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		rest, ok := strings.CutPrefix(name, "WEIR_")
		cut := strings.LastIndexByte(rest, '_')
		if !ok || cut < 0 {
			continue
		}
		if _, ok := configured[rest[:cut]]; ok {
			continue
		}
		api, jobs, err := queue.CountJobs(ctx, js, name)
		if err != nil {
			return nil, err
		}
		if api != "" && jobs > 0 {
			found[api] += jobs
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	return found, nil
}

// What is told of jobs that are left of an api which is not configured: at a start, and when the api is taken out of a weir that runs.
const (
	leftAtStart = "jobs wait of an api that is not configured: configure it again to have them called"
	leftRunning = "jobs are left of an api that is not configured: they are called until weir restarts, and wait then until the api is configured again"
)

// tellLeftovers warns of jobs that are left of an api which is not configured.
func (w *Worker) tellLeftovers(ctx context.Context, c *config.Config, what string) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	found, err := jobsLeft(ctx, w.js, c)
	if err != nil {
		w.log.Warn("it is not known whether jobs wait of apis that are not configured", "err", err)
		return
	}
	for _, api := range slices.Sorted(maps.Keys(found)) {
		w.log.Warn(what, "api", api, "jobs", found[api])
	}
}

// noAPI says that an api is not configured: how many jobs wait for it all the same, or which are.
func (c *connection) noAPI(ctx context.Context, name string, current *config.Config) error {
	ctx, done := c.denied.tolerate(ctx) // who may not count them is told the rest
	defer done()
	if found, err := jobsLeft(ctx, c.js, current); err == nil && found[name] > 0 {
		return notFound(fmt.Errorf("api %s is not configured, and %s %s in its queues: configure it again to have them called",
			name, count(found[name], "job"), verb(found[name], "waits", "wait")))
	}
	return noAPI(name, current)
}
