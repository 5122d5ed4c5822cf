package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"
)

// replica is one weir of a fleet. It has links of its own to NATS and Redis. The link to the api is shared, and the
// replica names itself in each call.
type replica struct {
	name  string
	nats  []*network.Link // to each node
	redis *network.Link

	process *process // guarded by the fleet's mutex, like away
	away    bool     // not running on purpose
}

func (f *fleet) newReplica(n int) (*replica, error) {
	r := &replica{name: fmt.Sprintf("replica-%d", n+1)}
	for _, node := range f.nodes {
		l, err := network.NewLink(node.clients)
		if err != nil {
			return nil, err
		}
		r.nats = append(r.nats, l)
	}
	var err error
	r.redis, err = network.NewLink(f.redis.addr)
	return r, err
}

// startReplica starts a replica. It does not wait until the replica is ready.
func (f *fleet) startReplica(r *replica) error {
	var urls []string
	for _, l := range r.nats {
		urls = append(urls, "nats://"+l.Addr())
	}
	env := append(serveEnv(f.programs.o, r.name, "", fault.Order{}), "WEIR_STATE_DIR="+filepath.Join(f.programs.o.Dir, "state-"+r.name), // as on a machine of its own
		"WEIR_NATS_URL="+strings.Join(urls, ","), fmt.Sprintf("WEIR_REPLICAS=%d", plan.Nodes), "WEIR_REDIS_URL=redis://"+r.redis.Addr(), plan.NameVariable+"="+r.name, "WEIR_SECRETS="+plan.NameVariable)
	p, err := f.programs.start(program{name: r.name, args: []string{"serve"}, env: env, mark: "msg=ready"})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.process, r.away = p, false
	return nil
}

// takeAway marks a replica as not running on purpose, and returns its process.
func (f *fleet) takeAway(r *replica) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.away = true
	return r.process
}

// keepUp restarts replicas that ended without a plan, until ctx ends.
func (f *fleet) keepUp(ctx context.Context) {
	for stream.Sleep(ctx, 100*time.Millisecond) {
		for _, r := range f.replicas {
			f.mu.Lock()
			p, away := r.process, r.away
			f.mu.Unlock()
			if away || !p.Gone(ctx, 0) {
				continue
			}
			f.record.endedByItself(p, nil)
			if err := f.startReplica(r); err != nil {
				f.record.note("%s could not be started again: %v", r.name, err)
				return
			}
		}
	}
}

// awaitReplicas waits until all replicas are ready, except those that are away.
func (f *fleet) awaitReplicas(ctx context.Context) error {
	for limit := time.Now().Add(startWithin); time.Now().Before(limit); {
		f.mu.Lock()
		waiting := slices.ContainsFunc(f.replicas, func(r *replica) bool { return !r.away && !r.process.isReady() })
		f.mu.Unlock()
		if !waiting {
			return nil
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("not every replica was ready within %v: see %s", startWithin, f.programs.o.Dir)
}
