package admin

import (
	"context"
	"fmt"
	"strings"

	"weir/bucket/queue"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// JobsLeft counts, by api, the jobs that wait in the queues of apis that c does not configure.
func JobsLeft(ctx context.Context, js jetstream.JetStream, c *config.Config) (map[string]int, error) {
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

// ExplainNoAPI returns the error that an api is not configured. If jobs of the api still wait, the error tells how
// many. Otherwise it names the configured apis.
func ExplainNoAPI(ctx context.Context, c *connect.Connection, name string, current *config.Config) error {
	ctx, done := c.Denied.Tolerate(ctx) // without the right to count jobs, the user still gets the error of NoAPI
	defer done()
	if found, err := JobsLeft(ctx, c.JetStream, current); err == nil && found[name] > 0 {
		return cli.NotFound(fmt.Errorf("api %s is not configured, and %s %s in its queues: configure it again to have them called",
			name, cli.Count(found[name], "job"), cli.Verb(found[name], "waits", "wait")))
	}
	return NoAPI(name, current)
}
