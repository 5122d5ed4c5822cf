package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
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

// tellLeftovers warns of jobs that wait for an api which is not configured.
func (w *Worker) tellLeftovers(ctx context.Context, c *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	found, err := jobsLeft(ctx, w.js, c)
	if err != nil {
		w.log.Warn("it is not known whether jobs wait of apis that are not configured", "err", err)
		return
	}
	for _, api := range slices.Sorted(maps.Keys(found)) {
		w.log.Warn("jobs wait of an api that is not configured: configure it again to have them called", "api", api, "jobs", found[api])
	}
}

// explainNoAPI says that an api is not configured: how many jobs wait for it all the same, or which are.
func explainNoAPI(ctx context.Context, c *connect.Connection, name string, current *config.Config) error {
	ctx, done := c.Denied.Tolerate(ctx) // who may not count them is told the rest
	defer done()
	if found, err := jobsLeft(ctx, c.JetStream, current); err == nil && found[name] > 0 {
		return cli.NotFound(fmt.Errorf("api %s is not configured, and %s %s in its queues: configure it again to have them called",
			name, cli.Count(found[name], "job"), cli.Verb(found[name], "waits", "wait")))
	}
	return noAPI(name, current)
}

// runningConfigOf reads the running configuration. ok is false where there is none to be read: weir never ran on this server,
// or these credentials may not see it.
func runningConfigOf(ctx context.Context, c *connect.Connection) (current *config.Config, ok bool) {
	ctx, done := c.Denied.Tolerate(ctx) // a producer need not be allowed to see it
	defer done()
	v, err := currentVersion(ctx, c)
	if err != nil {
		return nil, false
	}
	return v.config, true
}

// noAPI says that an api is not configured, and which are.
func noAPI(name string, c *config.Config) error {
	names := make([]string, len(c.APIs))
	for i := range c.APIs {
		names[i] = c.APIs[i].Name
	}
	if len(names) == 0 {
		return cli.NotFound(fmt.Errorf("there is no api %q: none is configured", name))
	}
	return cli.NotFound(fmt.Errorf("there is no api %q; the configured ones are %s", name, strings.Join(names, ", ")))
}
