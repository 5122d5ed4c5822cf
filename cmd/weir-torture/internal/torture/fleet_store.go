package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of the deletions before a fault.
const (
	manyDeletes   = 600              // before a node is restarted
	deletesWithin = 90 * time.Second // the longest wait for these deletions
	burstGathers  = 10 * time.Second // the length of the pause, in which jobs gather
)

// storeFaults are the faults of what the nodes of a fleet have stored.
type storeFaults struct{ *fleet }

// strike executes a fault of what the nodes have stored.
func (f storeFaults) strike(ctx context.Context, s plan.Strike, done *judge.Strike) (err error) {
	n := f.nodes[s.Target]
	switch s.Kind {
	case plan.FlipNode:
		return f.flipNode(ctx, s, done)
	case plan.CutPower:
		return f.cutPower(ctx, s, done)
	case plan.RestartDeleted:
		done.Target = n.name
		if err := f.awaitDeletes(ctx, manyDeletes); err != nil {
			return err
		}
		return f.restartNode(ctx, n, s)
	default:
		done.Target, err = f.scaleStream(ctx, s)
		return err
	}
}

// end ends a node: by a signal if orderly is true, and by kill -9 otherwise.
func (f *fleet) end(n *node, orderly bool) {
	if orderly {
		if err := n.process.Stop(stopWithin); err != nil {
			f.record.note("an orderly stop: %v", err)
		}
		return
	}
	now := time.Now()
	n.process.Kill()
	f.record.killed(judge.Kill{What: "server", At: now})
}

func (f storeFaults) restartNode(ctx context.Context, n *node, s plan.Strike) error {
	f.end(n, s.Orderly)
	stream.Sleep(ctx, s.Last)
	return f.startNode(ctx, n)
}

func (f *fleet) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := f.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// gather pauses the api, so that jobs gather in the queue. The caller resumes it.
func (f storeFaults) gather(ctx context.Context) error {
	if err := f.command(ctx, "pause", plan.APIName); err != nil {
		return err
	}
	stream.Sleep(ctx, burstGathers)
	return nil
}

// command runs a command of weir.
func (f storeFaults) command(ctx context.Context, args ...string) error {
	p, err := f.programs.start(program{name: "command", args: args, env: f.servers.commandEnv()})
	if err != nil {
		return err
	}
	if !p.Gone(ctx, appliesWithin) {
		p.Kill()
	}
	if !p.State().Success() {
		return fmt.Errorf("weir %s: %s", strings.Join(args, " "), lastLine(p.Tail()))
	}
	return nil
}

// awaitDeletes waits until so many more messages of the queue were deleted. weir deletes the message of each job that
// has ended, and marks that it needs no more.
func (f storeFaults) awaitDeletes(ctx context.Context, more int) error {
	first, last := -1, 0
	for limit := time.Now().Add(deletesWithin); time.Now().Before(limit); {
		deleted, err := f.deleted(ctx)
		if err == nil {
			if first < 0 {
				first = deleted
			}
			if last = deleted - first; last >= more {
				return nil
			}
		}
		if !stream.Sleep(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	f.record.note("only %d messages were deleted within %v, not %d", last, deletesWithin, more)
	return nil
}

// deleted returns how many messages of the queue were deleted since its streams began.
func (f storeFaults) deleted(ctx context.Context) (messages int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list := f.js.ListStreams(ctx)
	for s := range list.Info() {
		if strings.HasPrefix(s.Config.Name, "WEIR_"+plan.APIName+"_") {
			messages += int(s.State.LastSeq - s.State.Msgs)
		}
	}
	return messages, list.Err()
}

// scaleStream gives a stream one copy, and three again after a while. Then it restarts the node that had the only copy:
// at once, or when the other copies are current.
func (f storeFaults) scaleStream(ctx context.Context, s plan.Strike) (target string, err error) {
	names, err := f.streams(ctx)
	if err != nil {
		return "", err
	}
	name := names[s.Seed%uint64(len(names))]
	if err := f.setCopies(ctx, name, 1); err != nil {
		return "", err
	}
	stream.Sleep(ctx, s.Last)
	info, err := f.info(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%s with one copy: %w", name, err)
	}
	if err := f.setCopies(ctx, name, plan.Nodes); err != nil {
		return "", err
	}
	how := "at once"
	if !s.Apart {
		how = "current"
		if err := f.awaitCurrent(ctx); err != nil {
			return "", err
		}
	}
	at := slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == info.Cluster.Leader })
	if at < 0 {
		return "", fmt.Errorf("%s with one copy is led by %q", name, info.Cluster.Leader)
	}
	return fmt.Sprintf("%s, then %s, %s", name, f.nodes[at].name, how), f.restartNode(ctx, f.nodes[at], s)
}

// streams returns the names of all streams, in order.
func (f storeFaults) streams(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list := f.js.StreamNames(ctx)
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return names, nil
}

// setCopies sets how many copies a stream has. It waits until a stream with one copy has no other.
func (f storeFaults) setCopies(ctx context.Context, name string, copies int) error {
	for limit := time.Now().Add(startWithin); ; {
		info, err := f.info(ctx, name)
		if err == nil && info.Config.Replicas != copies {
			c := info.Config
			c.Replicas = copies
			_, err = f.js.UpdateStream(ctx, c)
		}
		if err == nil && info.Config.Replicas == copies && (copies > 1 || info.Cluster != nil && len(info.Cluster.Replicas) == 0) {
			return nil
		}
		if time.Now().After(limit) || !stream.Sleep(ctx, 100*time.Millisecond) {
			return errors.Join(fmt.Errorf("%s does not have %d copies within %v", name, copies, startWithin), err)
		}
	}
}
