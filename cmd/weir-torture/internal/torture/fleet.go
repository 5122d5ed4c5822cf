package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of waits, and lengths of pauses.
const (
	catchesUp = 3 * time.Minute  // until few jobs wait
	settles   = 5 * time.Second  // for replicas to rebalance partitions
	calmFor   = 15 * time.Second // without faults, while the work of each replica is counted
)

// fleet is the part of a stage that exists if there are several replicas:
//
//	producers ──▶ three nodes ◀─ links ─▶ replicas ─ link ─▶ api
//	              (links between them)        └── links ─▶ Redis
type fleet struct {
	programs *programs
	record   *record
	servers  *servers
	operator *operator
	teardown *teardown

	producing *producers // set before the faults

	nodes    []*node
	redis    *redisServer
	replicas []*replica
	toAPI    *network.Link
	nc       *nats.Conn // to any node, without a link
	js       jetstream.JetStream
	ledger   *follower

	strikes []judge.Strike
	calm    []plan.Span

	mu sync.Mutex // guards the replicas' processes
}

// setUp starts the nodes, Redis and the replicas.
func (f *fleet) setUp(ctx context.Context, api *paidAPI) (err error) {
	p := network.NewPorts()
	if f.redis, err = newRedis(p); err != nil {
		return err
	}
	if f.nodes, err = newNodes(p); err != nil {
		return err
	}
	f.makeDrives()
	if f.toAPI, err = network.NewNamedLink(strings.TrimPrefix(api.url(), "http://")); err != nil {
		return err
	}
	for n := range f.programs.o.Replicas {
		r, err := f.newReplica(n)
		if err != nil {
			return err
		}
		f.replicas = append(f.replicas, r)
	}
	f.teardown.onEnd(f.closeLinks)
	if f.ledger, err = follow(api.ledger); err != nil {
		return err
	}
	f.teardown.onEnd(f.ledger.close)
	if err := f.operator.configure("http://" + f.toAPI.Addr()); err != nil {
		return err
	}
	f.teardown.onEnd(f.stopServers)
	if err := f.startServers(ctx); err != nil {
		return err
	}
	for _, n := range f.nodes {
		f.servers.urls = append(f.servers.urls, "nats://"+n.clients)
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	f.teardown.onEnd(f.stopReplicas)
	for _, r := range f.replicas {
		if err := f.startReplica(r); err != nil {
			return err
		}
		if err := r.process.awaitReady(ctx, startWithin); err != nil { // the first one creates the streams
			return err
		}
	}
	return nil
}

// startServers starts Redis and all nodes at once, because no node becomes ready alone.
func (f *fleet) startServers(ctx context.Context) error {
	started := make(chan error, 1)
	go func() { started <- f.startNodes(ctx) }()
	return errors.Join(f.startRedis(ctx), <-started)
}

// startNodes starts all nodes at once.
func (f *fleet) startNodes(ctx context.Context) error {
	var starting sync.WaitGroup
	failed := make([]error, len(f.nodes))
	for i, n := range f.nodes {
		starting.Go(func() { failed[i] = f.startNode(ctx, n) })
	}
	starting.Wait()
	return errors.Join(failed...)
}

func (f *fleet) connect(ctx context.Context) (err error) {
	f.nc, err = nats.Connect(strings.Join(f.servers.urls, ","), nats.Name("torture"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.PingInterval(5*time.Second), nats.ErrorHandler(nothingNew))
	if err != nil {
		return fmt.Errorf("connect to the NATS cluster: %w", err)
	}
	f.teardown.onEnd(func() error { f.nc.Close(); return nil })
	if f.js, err = jetstream.New(f.nc, jetstream.WithDefaultTimeout(2*time.Second)); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return f.awaitCluster(ctx)
}

func (f *fleet) stopServers() (err error) {
	for _, n := range f.nodes {
		if n.process != nil {
			err = errors.Join(err, n.process.Stop(stopWithin))
		}
	}
	if f.redis.process != nil {
		f.redis.process.Kill()
	}
	return err
}

func (f *fleet) stopReplicas() error {
	var stopping sync.WaitGroup
	failed := make([]error, len(f.replicas))
	for i, r := range f.replicas {
		if r.process != nil {
			stopping.Go(func() { failed[i] = r.process.Stop(stopWithin) })
		}
	}
	stopping.Wait()
	return errors.Join(failed...)
}

func (f *fleet) closeLinks() error {
	var err error
	for _, n := range f.nodes {
		for _, l := range n.routes {
			err = errors.Join(err, l.Close())
		}
	}
	for _, r := range f.replicas {
		for _, l := range append(r.nats, r.redis) {
			err = errors.Join(err, l.Close())
		}
	}
	return errors.Join(err, f.toAPI.Close())
}

// testify adds a fleet's part of the evidence.
func (f *fleet) testify(e *judge.Evidence) {
	e.Strikes, e.Calm, e.InFlight, e.Keys = f.strikes, f.calm, plan.FleetInFlight, f.programs.o.AllKeys()
	e.Quota = int64(f.programs.o.Quota)
	for _, s := range f.strikes {
		if s.Kind == plan.CutAPI {
			e.Spoilt = append(e.Spoilt, plan.Span{From: s.At, To: s.Ended})
		}
	}
	for _, r := range f.replicas {
		e.Replicas = append(e.Replicas, r.name)
	}
}
