package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
)

// What weir is told of the api. Late arrivals within the jitter are no breach: it covers what the proxy delays requests by
// and what a small machine does.
const (
	apiName     = "pay"
	callTimeout = 2 * time.Second
	jitter      = 200 * time.Millisecond
	accountRate = 80 // a second, over all keys, at least

	burstKey, burstRate, burstHolds = "burst", 5, 5
	slowKey                         = "slow"
	slowPer                         = 5 * time.Second
)

// Bounds of what is waited for.
const (
	startWithin = 90 * time.Second // a weir may wait for an earlier one's lease, or for a server that is stopped
	stopWithin  = 30 * time.Second
	stuckAfter  = 2 * time.Minute // without fewer jobs in the queue
)

// stage is everything a run consists of.
type stage struct {
	o    *Options
	plan *plan

	ledger  string
	api     *process
	network *network // nil where nothing spoils it
	disk    *disk    // nil where it is never full
	urls    []string // of the server, or of all nodes
	fleet   *fleet   // nil where there is one weir
	held    *machine.HeldUp
	url     string // by which weir calls the api
	http    string // where weir tells its metrics; empty where it does not

	turn      sync.Mutex // held by what wants no kills beside its own
	producing *producers

	mu        sync.Mutex
	worker    *process // the one that is killed next
	server    *process
	kills     []Kill
	counts    map[kind]int
	ways      map[way]int // in which configurations came in force
	timeline  timeline
	memory    []memoryLife
	missed    int // chosen points that were not reached in time
	byThem    int // times that weir ended by itself
	notes     []string
	setBacks  []setBack
	damages   []damage
	heard     heard
	unnoticed int          // backups that were put back and started without a word
	boots     int          // of the machine, as weir is told
	over      atomic.Int64 // lives
	cleanup   []func() error
}

// Kill is one end of a process.
type Kill struct {
	What  string      // worker or server
	Point fault.Point // where; empty: at random
	At    time.Time
}

// Run tortures weir and judges it. It blocks until the verdict, or ctx ends.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &stage{o: &o, plan: newPlan(&o), counts: map[kind]int{}, ways: map[way]int{}, ledger: filepath.Join(o.Dir, "ledger.jsonl")}
	defer func() {
		for i := len(s.cleanup) - 1; i >= 0; i-- {
			err = errors.Join(err, s.cleanup[i]())
		}
	}()
	start := time.Now()
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	asOperator, err := s.asOperator()
	if err != nil {
		return nil, err
	}
	asProducer, err := s.asProducer()
	if err != nil {
		return nil, err
	}
	witness, err := startWitness(s.urls, o.partitions(), asOperator)
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
	producing, err := startProducers(ctx, s.urls, o.Dir, s.o.loads(), asProducer)
	if err != nil {
		return nil, err
	}
	s.producing = producing
	if err := s.torment(ctx, faults); err != nil {
		stop()
		cancel()
		_ = producing.end() // it has nobody to submit to
		return nil, err
	}
	if err := producing.end(); err != nil {
		return nil, err
	}
	waiting, err := s.drain(ctx)
	if err != nil {
		return nil, err
	}
	run, err := s.evidence(ctx, producing, witness)
	if err != nil {
		return nil, err
	}
	run.Waiting, run.Took = waiting, time.Since(start)
	if run.Spent, err = s.spent(ctx); err != nil {
		return nil, err
	}
	redriven, err := s.redrive(ctx, run)
	if err != nil {
		return nil, err
	}
	run.Redrives = redriven
	return Judge(run), nil
}

// setUp starts what weir needs.
func (s *stage) setUp(ctx context.Context) (err error) {
	s.held = machine.MeasureHeldUp()
	s.onEnd(func() error { s.held.Stop(); return nil })
	if err := s.startAPI(ctx); err != nil {
		return err
	}
	if s.o.isFleet() {
		return s.setUpFleet(ctx)
	}
	addr, err := machine.FreeAddr()
	if err != nil {
		return err
	}
	s.urls = []string{"nats://" + addr}
	if err := s.makeCredentials(); err != nil {
		return err
	}
	if s.o.Server == External {
		if err := s.setUpDisk(); err != nil {
			return err
		}
		s.onEnd(func() error {
			if s.server == nil {
				return nil
			}
			return s.server.Stop(stopWithin)
		})
		if err := s.startServer(ctx); err != nil {
			return err
		}
	}
	if s.o.IdleKills > 0 && !s.o.sharesSpend() {
		s.note("what weir has spent is not looked at: with takeovers there is no budget")
	}
	if s.o.sharesSpend() {
		if s.http, err = machine.FreeAddr(); err != nil {
			return err
		}
	}
	url := s.apiURL()
	if s.o.Cuts > 0 {
		if s.network, err = newNetwork(url); err != nil {
			return err
		}
		s.onEnd(s.network.close)
		url = s.network.url()
	}
	return s.configure(url)
}

func (s *stage) startAPI(ctx context.Context) (err error) {
	args := []string{
		"fake-api", "--ledger", s.ledger, "--key-segment=-1", "--keep-body=64", "--latency=" + s.o.latency(), "--price=10000",
		"--script=" + s.o.script(), "--other-id-header=" + otherKeyHeader,
	}
	if s.o.Idempotent || s.o.ConfigChanges > 0 {
		args = append(args, "--repeats=awaited")
	}
	if s.o.Revocations > 0 {
		args = append(args, "--refuse-while="+s.revoked())
	}
	if s.api, err = s.start(program{name: "fake-api", args: args, mark: "listening http"}); err != nil {
		return err
	}
	s.onEnd(func() error { s.api.Kill(); return nil }) // its ledger needs no more
	return s.api.awaitReady(ctx, startWithin)
}

func (s *stage) setUpDisk() (err error) {
	if s.o.DiskFulls == 0 {
		return nil
	}
	if s.disk, err = newDisk(s.data()); err != nil {
		s.note("no full disk: %v", err)
		return nil
	}
	s.onEnd(s.disk.close)
	return nil
}

func (s *stage) data() string { return filepath.Join(s.o.Dir, "data") }

// state is where one weir notes how far its calls have come.
func (s *stage) state() string { return filepath.Join(s.o.Dir, "state") }

// startServer starts the nats-server where it was before.
func (s *stage) startServer(ctx context.Context) error {
	args := []string{"nats-server", "--listen", s.urls[0][len("nats://"):], "--dir", s.data(), "--durability", s.o.Durability}
	if s.disk != nil {
		args = append(args, "--max-store", strconv.Itoa(1<<40)) // so that the disk is full before the server says so
	}
	p, err := s.start(program{name: "nats-server", args: args, mark: "listening nats"})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.server = p
	s.mu.Unlock()
	return p.awaitReady(ctx, startWithin)
}

// apiURL is where the api listens itself.
func (s *stage) apiURL() string { return s.api.marked[len("listening "):] }

// drain waits until nothing is queued and returns how many jobs still are when no more are called.
func (s *stage) drain(ctx context.Context) (waiting int, err error) {
	as, err := s.asOperator()
	if err != nil {
		return 0, err
	}
	nc, err := nats.Connect(strings.Join(s.urls, ","), as...)
	if err != nil {
		return 0, fmt.Errorf("connect to the server: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("JetStream: %w", err)
	}
	s.talk("no more faults; what is queued is called")
	least, since := math.MaxInt, time.Now()
	for {
		waiting, err = queued(ctx, js)
		if err == nil && waiting < least {
			least, since = waiting, time.Now()
		}
		switch {
		case err == nil && waiting == 0:
			return 0, nil
		case time.Since(since) > stuckAfter:
			return waiting, err
		case !stream.Sleep(ctx, 200*time.Millisecond):
			return waiting, context.Cause(ctx)
		}
	}
}

// queued is how many jobs wait.
func queued(ctx context.Context, js jetstream.JetStream) (jobs int, err error) {
	depths, err := queue.Depths(ctx, js, apiName)
	for _, d := range depths {
		jobs += int(d.Jobs)
	}
	return jobs, err
}

// evidence gathers what the verdict is made from.
func (s *stage) evidence(ctx context.Context, p *producers, w *witness) (*Evidence, error) {
	as, err := s.asOperator()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(strings.Join(s.urls, ","), as...)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	ends, err := readEnds(ctx, js)
	if err != nil {
		return nil, err
	}
	ledger, err := fakeapi.ReadLedger(s.ledger)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Evidence{
		Options: s.o, Receipts: p.receipts, Troubles: p.troubles, Ends: ends, Arrivals: ledger.Arrivals, Began: ledger.Started, Announced: w.announced(),
		Kills: s.kills, Faults: s.counts, Missed: s.missed, ByThem: s.byThem, Spoilt: s.network.spoilt(), HeldUp: s.held.Worst(),
		Keys: s.o.keys(), Notes: s.notes, Timeline: slices.Clone(s.timeline), Ways: s.ways, Memory: s.memory, KnowsMemory: knowsMemory(s.o.Binary),
		SetBacks: slices.Clone(s.setBacks), Damages: slices.Clone(s.damages), Heard: s.heard, Unnoticed: s.unnoticed,
	}
	if s.fleet != nil {
		s.fleet.testify(e)
	}
	return e, nil
}

func (s *stage) onEnd(do func() error) { s.cleanup = append(s.cleanup, do) }

func (s *stage) talk(format string, args ...any) {
	_, _ = fmt.Fprintf(s.o.Talk, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// note keeps a sentence for the report.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}
