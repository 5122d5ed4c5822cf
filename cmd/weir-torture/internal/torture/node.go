package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/disk"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go/jetstream"
)

// node is one server of the cluster.
type node struct {
	name    string
	clients string // address for clients: producers use it directly, replicas by links of their own
	cluster string // address for the other nodes
	routes  []*network.Link
	drive   *disk.Drive // nil unless the plan cuts its power
	process *process
}

// newNodes prepares the nodes, with a link from each to every other one. It does not start them.
func newNodes(p *network.Ports) ([]*node, error) {
	all := make([]*node, plan.Nodes)
	for i := range all {
		all[i] = &node{name: fmt.Sprintf("nats-%d", i+1)}
		for _, addr := range []*string{&all[i].clients, &all[i].cluster} {
			var err error
			if *addr, err = p.Free(); err != nil {
				return nil, err
			}
		}
	}
	for i, from := range all {
		for j, to := range all {
			if i == j {
				continue
			}
			l, err := network.NewLink(to.cluster)
			if err != nil {
				return nil, err
			}
			from.routes = append(from.routes, l)
		}
	}
	return all, nil
}

// startNode starts a node with its old store and addresses. It does not wait for the other nodes.
func (f *fleet) startNode(ctx context.Context, n *node) error {
	args := []string{
		"nats-server", "--name", n.name, "--listen", n.clients, "--cluster-listen", n.cluster,
		"--dir", f.storeOf(n), "--durability", f.programs.o.Durability,
	}
	for _, l := range n.routes {
		args = append(args, "--routes", l.Addr())
	}
	p, err := f.programs.start(program{name: n.name, args: args, mark: "listening nats"})
	if err != nil {
		return err
	}
	n.process = p
	return p.awaitReady(ctx, startWithin)
}

// homeOf returns the directory of everything that a node stores. Its drive is mounted there.
func (f *fleet) homeOf(n *node) string { return filepath.Join(f.programs.o.Dir, n.name) }

// storeOf returns the directory of a node's store.
func (f *fleet) storeOf(n *node) string { return filepath.Join(f.homeOf(n), "store") }

// paths returns the links between a node and the other nodes, in both directions.
func (f *fleet) paths(n *node) []*network.Link {
	links := append([]*network.Link(nil), n.routes...)
	for _, other := range f.nodes {
		for _, l := range other.routes {
			if l.Target == n.cluster {
				links = append(links, l)
			}
		}
	}
	return links
}

// awaitCluster waits until a stream can have a copy on every node. JetStream answers before its leader knows all nodes.
func (f *fleet) awaitCluster(ctx context.Context) error {
	const trial = "TRIAL"
	for limit := time.Now().Add(startWithin); ; {
		_, err := f.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: trial, Subjects: []string{"trial"}, Replicas: plan.Nodes, Storage: jetstream.MemoryStorage,
		})
		if err == nil {
			err = f.js.DeleteStream(ctx, trial)
		}
		if err == nil {
			return nil
		}
		if time.Now().After(limit) || !stream.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the NATS cluster did not come up: %w", err)
		}
	}
}

// awaitCurrent waits until every stream has a leader and all its copies are current. Before that, no other node may go
// down. After CurrentWithin it notes the lag and returns.
func (f *fleet) awaitCurrent(ctx context.Context) error {
	last, err := f.awaitCopies(ctx, judge.CurrentWithin)
	if last != "" {
		f.record.note("after %v not every copy of a stream was current: %s", judge.CurrentWithin, last)
	}
	return err
}

// awaitCopies waits until every stream has a leader and all its copies are current, and then returns "". After the time
// within it returns what behind returned last.
func (f *fleet) awaitCopies(ctx context.Context, within time.Duration) (behind string, err error) {
	for limit := time.Now().Add(within); time.Now().Before(limit); {
		if behind = f.behind(ctx); behind == "" {
			return "", nil
		}
		if !stream.Sleep(ctx, 200*time.Millisecond) {
			return "", context.Cause(ctx)
		}
	}
	return behind, nil
}

// behind returns a stream that is not current on every node, or an error as text. It returns "" if all are current.
func (f *fleet) behind(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list := f.js.ListStreams(ctx)
	found := ""
	for s := range list.Info() {
		if !whole(s) {
			found = s.Config.Name
		}
	}
	if err := list.Err(); err != nil {
		return err.Error()
	}
	return found
}

func whole(s *jetstream.StreamInfo) bool {
	if s.Cluster == nil || s.Cluster.Leader == "" {
		return false
	}
	for _, peer := range s.Cluster.Replicas {
		if !peer.Current || peer.Offline {
			return false
		}
	}
	return len(s.Cluster.Replicas) == plan.Nodes-1
}
