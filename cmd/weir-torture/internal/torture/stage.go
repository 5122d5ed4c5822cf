package torture

import (
	"context"
	"errors"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir-torture/internal/disk"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"
)

// Bounds of waits.
const (
	startWithin = 90 * time.Second // a weir may wait for the lease of an earlier one, or for a stopped server
	stopWithin  = 30 * time.Second
	stuckAfter  = 2 * time.Minute // while the queue does not shrink
)

// stage has everything that a run needs.
type stage struct {
	o        *plan.Options
	plan     *plan.Plan
	record   *record
	programs *programs
	teardown *teardown
	held     *machine.HeldUp

	api      *paidAPI
	network  *network.Proxy // nil if no fault disturbs it
	receiver *receiver      // nil without callbacks
	servers  *servers
	operator *operator

	// For one weir:
	server *server // nil if the server is inside weir
	weir   *weir
	// For several:
	fleet *fleet // nil if there is one weir
}

func newStage(o *plan.Options) *stage {
	s := &stage{o: o, plan: plan.New(o), record: newRecord(o.Talk), teardown: &teardown{}}
	s.programs = &programs{o, s.record}
	s.api = newPaidAPI(s.programs)
	s.servers = &servers{o: o, record: s.record}
	s.weir = &weir{programs: s.programs, record: s.record, servers: s.servers}
	s.operator = &operator{programs: s.programs, record: s.record, servers: s.servers, weir: s.weir}
	if o.IsFleet() {
		s.fleet = &fleet{programs: s.programs, record: s.record, servers: s.servers, operator: s.operator, teardown: s.teardown}
	}
	return s
}

// Run tortures weir and judges it. It blocks until the verdict, or until ctx ends.
func Run(ctx context.Context, o plan.Options) (r *judge.Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := newStage(&o)
	defer func() { err = errors.Join(err, s.teardown.end()) }()
	start := time.Now()
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	asOperator, err := s.servers.asOperator()
	if err != nil {
		return nil, err
	}
	asProducer, err := s.servers.asProducer()
	if err != nil {
		return nil, err
	}
	witness, err := startWitness(s.servers.urls, o.Partitions(), asOperator)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	faults, stop := context.WithCancel(ctx)
	defer stop()
	if o.Duration > 0 {
		faults, stop = context.WithTimeout(ctx, o.Duration)
		defer stop()
	}
	producing, err := startProducers(ctx, s.servers.urls, o.Dir, o.Loads(), asProducer)
	if err != nil {
		return nil, err
	}
	if err := s.torment(ctx, faults, producing); err != nil {
		stop()
		cancel()
		_ = producing.end() // there is no weir to submit to
		return nil, err
	}
	if err := producing.end(); err != nil {
		return nil, err
	}
	waiting, err := s.servers.drain(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.awaitEnds(ctx); err != nil {
		return nil, err
	}
	run, err := s.evidence(ctx, producing, witness)
	if err != nil {
		return nil, err
	}
	run.Waiting, run.Took = waiting, time.Since(start)
	if run.Spent, err = s.weir.spent(ctx); err != nil {
		return nil, err
	}
	redriver := &redriver{programs: s.programs, record: s.record, servers: s.servers, weir: s.weir, api: s.api}
	if run.Redrives, err = redriver.redrive(ctx, run); err != nil {
		return nil, err
	}
	run.Notes = s.record.noted() // including those made during the redrive
	return judge.Judge(run), nil
}

// setUp starts what weir needs and, for a fleet, the replicas.
func (s *stage) setUp(ctx context.Context) error {
	s.held = machine.MeasureHeldUp()
	s.teardown.onEnd(func() error { s.held.Stop(); return nil })
	s.teardown.onEnd(s.api.stop)
	if err := s.api.start(ctx); err != nil {
		return err
	}
	if s.o.Callbacks {
		var err error
		if s.receiver, err = newReceiver(); err != nil {
			return err
		}
		s.teardown.onEnd(s.receiver.close)
		s.o.Receives = s.receiver.url()
	}
	if s.fleet != nil {
		return s.fleet.setUp(ctx, s.api)
	}
	return s.setUpOne(ctx)
}

// setUpOne starts what a single weir needs. The first life starts weir.
func (s *stage) setUpOne(ctx context.Context) error {
	addr, err := machine.FreeAddr()
	if err != nil {
		return err
	}
	s.servers.urls = []string{"nats://" + addr}
	if err := s.servers.makeCredentials(); err != nil {
		return err
	}
	if s.o.Server == plan.External {
		if err := s.setUpServer(ctx, addr); err != nil {
			return err
		}
	}
	if s.o.IdleKills > 0 && !s.o.SharesSpend() {
		s.record.note("what weir has spent is not looked at: with takeovers there is no budget")
	}
	if s.o.SharesSpend() {
		if s.weir.http, err = machine.FreeAddr(); err != nil {
			return err
		}
	}
	url := s.api.url()
	if s.o.Cuts > 0 {
		if s.network, err = network.NewProxy(url); err != nil {
			return err
		}
		s.teardown.onEnd(s.network.Close)
		url = s.network.URL()
	}
	return s.operator.configure(url)
}

func (s *stage) setUpServer(ctx context.Context, addr string) (err error) {
	s.server = &server{programs: s.programs, record: s.record, addr: addr, dir: s.servers.dir()}
	if s.o.DiskFulls > 0 {
		if s.server.disk, err = disk.NewDisk(s.server.dir); err != nil {
			s.record.note("no full disk: %v", err)
		} else {
			s.teardown.onEnd(s.server.disk.Close)
		}
	}
	s.teardown.onEnd(s.server.stop)
	return s.server.start(ctx)
}

// torment executes the plan. When it returns, a weir is running for good.
func (s *stage) torment(ctx, faults context.Context, producing *producers) error {
	if s.fleet != nil {
		s.fleet.producing = producing
		return s.fleet.torment(ctx, faults, s.plan)
	}
	lives := &lives{planned: s.plan.Lives, weir: s.weir, api: s.api, servers: s.servers, producing: producing, record: s.record}
	mishaps := &mishaps{events: s.plan.Events, lives: lives, weir: s.weir, server: s.server, network: s.network, api: s.api, record: s.record}
	eventful, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan error, 2)
	go func() { events <- mishaps.happen(eventful, faults) }()
	go func() { events <- s.operator.reconfigure(eventful, faults, s.plan.Changes) }()
	err := lives.live(ctx, faults)
	if err == nil {
		err = s.stayUp(ctx)
	}
	if err != nil {
		stop()
		return errors.Join(err, <-events, <-events)
	}
	if err := errors.Join(<-events, <-events); err != nil {
		return err
	}
	return s.operator.restore(ctx)
}

// stayUp starts weir and keeps it running until the teardown.
func (s *stage) stayUp(ctx context.Context) error {
	stop, err := s.weir.stayUp(ctx)
	if err == nil {
		s.teardown.onEnd(stop)
	}
	return err
}

// evidence gathers everything that the verdict is made from.
func (s *stage) evidence(ctx context.Context, p *producers, w *witness) (*judge.Evidence, error) {
	nc, js, err := s.servers.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ends, err := readEnds(ctx, js)
	if err != nil {
		return nil, err
	}
	ledger, err := fakeapi.ReadLedger(s.api.ledger)
	if err != nil {
		return nil, err
	}
	calls, polls := judge.Apart(ledger.Arrivals)
	e := &judge.Evidence{
		Options: s.o, Receipts: p.receipts, Troubles: p.troubles, Ends: ends, Arrivals: calls, Polls: polls, Began: ledger.Started, Announced: w.announced(),
		Spoilt: s.network.Spoilt(), HeldUp: s.held.Worst(), Keys: s.o.AllKeys(), KnowsMemory: knowsMemory(s.o.Binary),
	}
	if s.o.Settled {
		if e.Charges, err = readCharges(ctx, js); err != nil {
			return nil, err
		}
		if e.Bill, err = s.askSpend(ctx); err != nil {
			return nil, err
		}
	}
	s.record.testify(e)
	s.receiver.testify(e)
	if s.fleet != nil {
		s.fleet.testify(e)
	}
	return e, nil
}
