//go:build linux

package main

import (
	"context"
	"errors"

	"weir/cmd/internal/contest"
)

// contender is a program that takes jobs and calls the api.
type contender struct {
	name       string
	peer       string // the peer that it belongs to
	durability string // when a job that it took is on disk
	durable    bool   // whether that is before it says that it took the job
	path       string // of its calls to the api
	busy       string // the queue that its workers read
	callsOnly  bool   // it takes jobs as another contender does, so intake is not measured
	producer   *contest.Role
	workers    []*contest.Role // empty: the store makes the calls
	store      int             // the store's process id
	// pace returns a contender with a queue of its own that keeps a rate by its own limiter. Nil: none is measured.
	pace func(ctx context.Context, rate int) (*contender, error)
}

// counted returns the processes whose CPU time is the contender's.
func (c *contender) counted() []int {
	pids := []int{c.store}
	for _, w := range c.workers {
		pids = append(pids, w.PID())
	}
	return pids
}

// all gives an order to all workers.
func (c *contender) all(ctx context.Context, do string) error {
	var err error
	for _, w := range c.workers {
		_, e := w.Order(ctx, contest.Order{Do: do})
		err = errors.Join(err, e)
	}
	return err
}

// peer is a product with one or more contenders.
type peer struct {
	name  string
	start func(ctx context.Context, s *stage) ([]*contender, error)
	// without says why the product's rate is not measured; "": a contender can keep one.
	without string
}

// peers are in the order of the report. The first is compared with the others.
var peers = []peer{
	{name: "weir", start: weirPeer},
	{name: "nats", start: barePeer, without: "JetStream has no limit in messages: a consumer's is in bits, and of push consumers only"},
	{name: "river", start: riverPeer, without: "River's open-source version has none (River Pro limits concurrency)"},
	{name: "asynq", start: asynqPeer},
	{name: "bullmq", start: bullPeer},
}

func weirPeer(ctx context.Context, s *stage) (all []*contender, err error) {
	start := func(durability string) (store int, producer *contest.Role, err error) {
		w, err := startWeir(ctx, s, durability)
		if err != nil {
			return 0, nil, err
		}
		producer, err = s.Role(ctx, "nats", contest.Settings{Store: "nats://" + w.NATS, Queue: "weir.jobs"})
		return w.PID(), producer, err
	}
	synced, producer, err := start("always")
	if err != nil {
		return nil, err
	}
	loose, looseProducer, err := start("interval")
	if err != nil {
		return nil, err
	}
	first := &contender{
		name: "weir", durability: "synced before the receipt; so are results and records of calls", durable: true,
		path: "/weir-idempotent-always", busy: "idempotent", producer: producer, store: synced,
	}
	first.pace = func(_ context.Context, rate int) (*contender, error) {
		paced := *first
		paced.path, paced.busy = "/weir-rate-"+itoa(rate), "paced-"+itoa(rate)
		return &paced, nil
	}
	return []*contender{
		first,
		{
			name: "weir, api not idempotent", durability: "the same, and an intent before each call", durable: true,
			path: "/weir-once-always", busy: "once", callsOnly: true, producer: producer, store: synced,
		},
		{
			name: "weir, interval", durability: "within 1 s",
			path: "/weir-idempotent-interval", busy: "idempotent", producer: looseProducer, store: loose,
		},
	}, nil
}

func barePeer(ctx context.Context, s *stage) (all []*contender, err error) {
	for _, kind := range []struct {
		name, durability, text string
		durable                bool
	}{
		{"bare NATS, every write synced", "always", "synced before the acknowledgement", true},
		{"bare NATS", "interval", "within 2 min by default, here 1 s", false},
	} {
		url, server, err := s.Server(ctx, "nats-"+kind.durability, kind.durability)
		if err != nil {
			return nil, err
		}
		c := &contender{name: kind.name, durability: kind.text, durable: kind.durable, path: "/bare-" + kind.durability, busy: contest.Busy, store: server.PID()}
		at := contest.Settings{Store: url, Queue: contest.BareSubject, AtOnce: s.o.AtOnce}
		if err := c.staff(ctx, s, "nats", at); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// staff starts a worker and a producer, which are roles of this program.
func (c *contender) staff(ctx context.Context, s *stage, role string, at contest.Settings) error {
	work := at
	work.Worker, work.API = true, s.judge.URL+c.path
	w, err := s.Role(ctx, role, work)
	if err != nil {
		return err
	}
	c.workers = []*contest.Role{w}
	c.producer, err = s.Role(ctx, role, at)
	return err
}

func riverPeer(ctx context.Context, s *stage) (all []*contender, err error) {
	for _, kind := range []struct {
		name, commit, text string
		durable            bool
	}{
		{"River", "on", "synced before the commit (PostgreSQL's default)", true},
		{"River, synchronous_commit=off", "off", "within 0.6 s", false},
	} {
		server, url, err := startPostgres(ctx, s, "postgres-"+kind.commit, "fsync=on", "synchronous_commit="+kind.commit)
		if err != nil {
			return nil, err
		}
		c := &contender{name: kind.name, durability: kind.text, durable: kind.durable, path: "/river-" + kind.commit, busy: contest.Busy, store: server.PID()}
		if err := c.staff(ctx, s, "river", contest.Settings{Store: url + "&pool_max_conns=10", Queue: c.busy, AtOnce: s.o.AtOnce}); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// redisKinds are the ways in which Redis keeps the jobs of Asynq and BullMQ.
var redisKinds = []struct {
	sync, text string
	durable    bool
}{
	{"always", "synced before the answer", true},
	{"everysec", "within 1 s (Redis' and BullMQ's advice)", false},
}

func asynqPeer(ctx context.Context, s *stage) (all []*contender, err error) {
	for _, kind := range redisKinds {
		server, addr, err := startRedis(ctx, s, "asynq-"+kind.sync, kind.sync)
		if err != nil {
			return nil, err
		}
		c := &contender{
			name: "Asynq, appendfsync " + kind.sync, durability: kind.text, durable: kind.durable, path: "/asynq-" + kind.sync, busy: contest.Busy,
			store: server.PID(),
		}
		at := contest.Settings{Store: addr, Queue: c.busy, AtOnce: s.o.AtOnce}
		if err := c.staff(ctx, s, "asynq", at); err != nil {
			return nil, err
		}
		if !kind.durable {
			c.pace = func(ctx context.Context, rate int) (*contender, error) {
				paced := *c
				paced.path, paced.busy = "/asynq-rate-"+itoa(rate), "rate-"+itoa(rate)
				limited := at
				limited.Queue, limited.Rate = paced.busy, rate
				return &paced, paced.staff(ctx, s, "asynq", limited)
			}
		}
		all = append(all, c)
	}
	return all, nil
}

func bullPeer(ctx context.Context, s *stage) (all []*contender, err error) {
	program, err := bullProgram(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range redisKinds {
		server, addr, err := startRedis(ctx, s, "bullmq-"+kind.sync, kind.sync)
		if err != nil {
			return nil, err
		}
		c := &contender{
			name: "BullMQ, appendfsync " + kind.sync, durability: kind.text, durable: kind.durable, path: "/bullmq-" + kind.sync, busy: contest.Busy,
			store: server.PID(),
		}
		at := contest.Settings{Store: addr, Queue: c.busy}
		if c.producer, err = s.bull(ctx, program, at); err != nil {
			return nil, err
		}
		if err := c.staffBull(ctx, s, program, at); err != nil {
			return nil, err
		}
		if !kind.durable {
			c.pace = func(ctx context.Context, rate int) (*contender, error) {
				paced := *c
				paced.path, paced.busy = "/bullmq-rate-"+itoa(rate), "rate-"+itoa(rate)
				limited := at
				limited.Queue, limited.Rate = paced.busy, rate
				return &paced, paced.staffBull(ctx, s, program, limited)
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// bullWorkers is how many worker processes BullMQ has by default. BullMQ's documentation has several on many cores. On
// two cores, which the store, the producer and the api share, one process made as many calls with a sixth less CPU.
const bullWorkers = 1

// staffBull starts BullMQ's workers.
func (c *contender) staffBull(ctx context.Context, s *stage, program string, at contest.Settings) error {
	at.Worker, at.API, at.AtOnce = true, s.judge.URL+c.path, max(1, s.o.AtOnce/s.o.BullWorkers)
	c.workers = nil
	for range s.o.BullWorkers {
		w, err := s.bull(ctx, program, at)
		if err != nil {
			return err
		}
		c.workers = append(c.workers, w)
	}
	return nil
}

// bull starts a role of BullMQ.
func (s *stage) bull(ctx context.Context, program string, at contest.Settings) (*contest.Role, error) {
	return s.Play(ctx, "BullMQ", at, "node", program)
}
