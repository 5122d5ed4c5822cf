package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// The faults that affect what the nodes of a fleet have stored. After each of them every stream must get all its copies
// again.
const (
	flipNode       kind = "bytes of a NATS node flipped"
	killNodes      kind = "kill -9 of all NATS nodes"
	restartDeleted kind = "NATS node after many deletes"
	scaleStream    kind = "stream scaled to one and back"
)

// ofStores reports whether a fault affects what the nodes have stored.
func (k kind) ofStores() bool {
	switch k {
	case flipNode, killNodes, restartDeleted, scaleStream:
		return true
	}
	return false
}

// The deletions that a fault waits for.
const (
	manyDeletes   = 600              // before a node is restarted
	burstDeletes  = 60               // after a pause of the api, before all nodes are killed
	deletesWithin = 90 * time.Second // the longest wait for these deletions
	burstGathers  = 10 * time.Second // the length of the pause, in which jobs gather
)

// strikeStore executes a fault that affects what the nodes have stored.
func (f *fleet) strikeStore(ctx context.Context, s strike, done *Strike) (err error) {
	n := f.nodes[s.target]
	switch s.kind {
	case flipNode:
		return f.flipNode(ctx, s, done)
	case killNodes:
		done.Target = "all"
		return f.killNodes(ctx, s)
	case restartDeleted:
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
	f.record.killed(Kill{What: "server", At: now})
}

func (f *fleet) restartNode(ctx context.Context, n *node, s strike) error {
	f.end(n, s.orderly)
	stream.Sleep(ctx, s.last)
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

// killNodes kills all nodes at the same moment, while the jobs that waited during a pause are called and deleted.
func (f *fleet) killNodes(ctx context.Context, s strike) error {
	if err := f.gather(ctx); err != nil {
		return err
	}
	if err := f.command(ctx, "resume", apiName); err != nil {
		return err
	}
	if err := f.awaitDeletes(ctx, burstDeletes); err != nil {
		return err
	}
	var killing sync.WaitGroup
	for _, n := range f.nodes {
		killing.Go(func() { f.end(n, false) })
	}
	killing.Wait()
	stream.Sleep(ctx, s.last)
	return f.startNodes(ctx)
}

// gather pauses the api until jobs have gathered in the queue. The caller must resume the api.
func (f *fleet) gather(ctx context.Context) error {
	if err := f.command(ctx, "pause", apiName); err != nil {
		return err
	}
	stream.Sleep(ctx, burstGathers)
	return nil
}

// command runs a command of weir.
func (f *fleet) command(ctx context.Context, args ...string) error {
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

// awaitDeletes waits until weir has deleted that many more messages from the queue: jobs that have ended, and marks
// that it no longer needs. After deletesWithin it notes how many are missing and returns.
func (f *fleet) awaitDeletes(ctx context.Context, more int) error {
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

// deleted returns how many messages have been deleted from the queue since its streams were made.
func (f *fleet) deleted(ctx context.Context) (messages int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list := f.js.ListStreams(ctx)
	for s := range list.Info() {
		if strings.HasPrefix(s.Config.Name, "WEIR_"+apiName+"_") {
			messages += int(s.State.LastSeq - s.State.Msgs)
		}
	}
	return messages, list.Err()
}

// scaleStream scales a stream to one copy, and after a while back to three. Then it restarts the node that had the only
// copy: at once if s.apart is true, and otherwise when the other copies are current.
func (f *fleet) scaleStream(ctx context.Context, s strike) (target string, err error) {
	names, err := f.streams(ctx)
	if err != nil {
		return "", err
	}
	name := names[s.seed%uint64(len(names))]
	if err := f.setCopies(ctx, name, 1); err != nil {
		return "", err
	}
	stream.Sleep(ctx, s.last)
	info, err := f.info(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%s with one copy: %w", name, err)
	}
	if err := f.setCopies(ctx, name, nodes); err != nil {
		return "", err
	}
	how := "at once"
	if !s.apart {
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
func (f *fleet) streams(ctx context.Context) ([]string, error) {
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

// setCopies sets how many copies a stream has. When it sets one, it also waits until the other copies are gone.
func (f *fleet) setCopies(ctx context.Context, name string, copies int) error {
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
