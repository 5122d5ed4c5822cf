package contest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
)

// Cluster is several nats-servers, each a process of its own, that keep a copy of every message.
type Cluster struct {
	URL      string // for clients: the URLs of all servers, with commas between them
	Servers  []*child.Process
	monitors []string // URL at which each server tells its own counts
}

// clusterWithin bounds the time until a stream can have a copy on every server.
const clusterWithin = time.Minute

// Cluster starts servers nats-servers that form a cluster. It returns when a stream can have a copy on each of them.
func (s *Stage) Cluster(ctx context.Context, servers int, durability string) (c Cluster, err error) {
	at := make([]string, servers) // addresses for the other servers
	for i := range at {
		if at[i], err = machine.FreeAddr(); err != nil {
			return c, err
		}
	}
	said := make([]<-chan string, servers)
	for i := range at { // all at once, because none becomes ready alone
		name := "node-" + strconv.Itoa(i+1)
		args := []string{"--name", name, "--cluster-listen", at[i], "--monitor", "127.0.0.1:0"}
		for k, other := range at {
			if k != i {
				args = append(args, "--routes", other)
			}
		}
		var p *child.Process
		if p, said[i], err = s.server(name, durability, args...); err != nil {
			return c, err
		}
		c.Servers = append(c.Servers, p)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, clusterWithin, fmt.Errorf("the cluster did not come up within %v", clusterWithin))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for i, p := range c.Servers { // the others wait in vain for one that ends
		go func() {
			select {
			case <-p.Exited():
				fail(fmt.Errorf("server %d of the cluster ended: %s\n%s", i+1, p.State(), p.Tail()))
			case <-ctx.Done():
			}
		}()
	}
	var urls []string
	for i, p := range c.Servers {
		monitor, err := line(ctx, "nats-server", p, said[i])
		if err != nil {
			return c, err
		}
		url, err := line(ctx, "nats-server", p, said[i])
		if err != nil {
			return c, err
		}
		c.monitors, urls = append(c.monitors, monitor), append(urls, url)
	}
	c.URL = strings.Join(urls, ",")
	return c, c.await(ctx)
}

// await waits until a stream can have a copy on every server. JetStream answers before its leader knows all servers,
// and without a leader it does not answer.
func (c Cluster) await(ctx context.Context) error {
	nc, js, err := Connect(c.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	const pause = 100 * time.Millisecond
	for {
		err := c.try(ctx, js)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// try makes a stream with a copy on every server, and deletes it.
func (c Cluster) try(ctx context.Context, js jetstream.JetStream) error {
	const (
		trial   = "TRIAL"
		answers = 2 * time.Second
	)
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: trial, Subjects: []string{"trial"}, Replicas: len(c.Servers), Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return err
	}
	return js.DeleteStream(ctx, trial)
}

// Messages counts the messages of a cluster since its servers started.
type Messages struct {
	Clients int64 // received from clients, and sent to them
	Between int64 // that one server received from another
}

// Messages asks the servers for their counts.
func (c Cluster) Messages(ctx context.Context) (sum Messages, err error) {
	for _, url := range c.monitors {
		text, err := ask(ctx, http.DefaultClient, http.MethodGet, url+"/varz", nil)
		if err != nil {
			return sum, fmt.Errorf("ask a nats-server for its counts: %w", err)
		}
		var told struct {
			In        int64 `json:"in_msgs"`
			InClient  int64 `json:"in_client_msgs"`
			OutClient int64 `json:"out_client_msgs"`
		}
		if err := json.Unmarshal(text, &told); err != nil {
			return sum, fmt.Errorf("the counts of a nats-server: %w", err)
		}
		sum.Clients += told.InClient + told.OutClient
		sum.Between += told.In - told.InClient
	}
	return sum, nil
}

// PIDs returns the ids of the servers' processes.
func (c Cluster) PIDs() (pids []int) {
	for _, p := range c.Servers {
		pids = append(pids, p.PID())
	}
	return pids
}
