package limitstate

import (
	"context"
	"log/slog"

	"weir/bucket"
	"weir/cmd/weir/internal/serve/clock"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options are the parts that the limits of all apis of one process use.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue // the bucket of marks, checkpoints and accounts
	Letters   *deadletter.Writer // for the events of budgets
	Caller    Caller
	Clock     *clock.Clock
	Redis     *Redis  // nil if limits are counted in the process
	Levels    *Levels // Open adds each api's level watch
	Pools     *Pools  // OpenAccount adds each account's limits
	Ledger    *LedgerWatch
	Recorder  *recorder.Recorder // knows the ledger's end at a kill; may be nil
	Instance  string
	Began     bucket.Micros // when this process began; 0: now
	Unsynced  bool          // the server acknowledges writes before they are synced: a crash of the machine loses them
	Log       *slog.Logger
}

// began returns when this process began. All calls of former processes were made before that.
func (o *Options) began() bucket.Micros {
	if o.Began == 0 {
		return o.Clock.Now()
	}
	return o.Began
}

// Caller is the code that makes the calls. Each method but Beside takes the name of an api. The limits call the methods
// at any time after the api's limits were opened, from several goroutines.
type Caller interface {
	Quiet(api string) bool                           // reports that no call runs in this process or waits to be recorded
	Beside() bool                                    // reports that other replicas call too
	Recovered(api string) (unlogged int, ok bool)    // ok: all calls of former processes have records, except for this many unlogged calls
	Price(api string) int64                          // price of a usual call, in millionths of the currency
	FixedPrice(api string) (price int64, fixed bool) // price of every call; fixed is false if prices differ
	HeardOfLevels(api string, levels []bucket.Level) // receives how much of the limits is used
	HeardOfLimiter(api string, err error)            // receives nil or why the limits cannot be read
	CalendarMoved(api string)                        // learns that periods now begin at other times
}

// Limits are the open limits of one api. Limits that the process counts grant nothing before Run.
type Limits struct {
	// Dispatch has the fields that the limits set for the api's worker. The caller adds the api and its queue.
	Dispatch dispatcher.APIOptions

	state   limitStore
	watch   *levelWatch
	settled <-chan struct{}
	drop    func()
}

// limitStore stores what one api's limits have counted, for the next start.
type limitStore interface {
	run(ctx context.Context) error // blocks until ctx ends
}

// Open opens an api's limits, in Redis or in the process, with the state that the last run left. former are the api's
// earlier rules. Open blocks until everything that the first slot requires is read and stored.
func Open(ctx context.Context, o *Options, api *httpcall.API, former []bucket.Former) (*Limits, error) {
	if o.Redis != nil {
		return openInRedis(ctx, o, api)
	}
	return openInProcess(ctx, o, api, former)
}

func openInRedis(ctx context.Context, o *Options, api *httpcall.API) (*Limits, error) {
	shared, err := openSharedLimits(ctx, o, api)
	if err != nil {
		return nil, err
	}
	a := &Limits{state: shared, watch: newLevelWatch(o, api.Name, shared.levels), Dispatch: dispatcher.APIOptions{
		Store: shared, Clock: schedule.OtherClock, SlotTime: shared.SlotTime, TAT: func(string) bucket.Micros { return 0 }, Checkpoint: func() {},
	}}
	a.drop = func() {
		o.Levels.drop(a.watch)
		o.Pools.drop(shared)
	}
	a.watch.unknown, a.watch.gap, a.watch.news = shared.unknown, shared.gaps.of, &shared.news
	return a, nil
}

func openInProcess(ctx context.Context, o *Options, api *httpcall.API, former []bucket.Former) (*Limits, error) {
	a, store, err := openUnit(ctx, o, unitOf(api), former)
	if err != nil {
		return nil, err
	}
	checkpoints := a.state.(*checkpointer)
	a.Dispatch = dispatcher.APIOptions{
		Store: store, Checkpoint: func() {
			checkpoints.now()
			o.Pools.checkpoint(store.Rules())
		},
		TAT: func(key string) bucket.Micros {
			tat, _ := store.TAT(key)
			return tat
		},
	}
	a.watch = newLevelWatch(o, api.Name, func(context.Context) ([]bucket.Level, error) { return store.Levels(), nil })
	a.drop = func() { o.Levels.drop(a.watch) }
	a.watch.gap, a.watch.news = checkpoints.accounts.gaps.of, &checkpoints.news
	checkpoints.accounts.changed = func() {
		checkpoints.now()
		a.watch.now()
	}
	return a, nil
}

// openUnit opens limits that this process counts.
func openUnit(ctx context.Context, o *Options, u unit, former []bucket.Former) (*Limits, *bucket.Memory, error) {
	if err := takeOverFromRedis(ctx, o, &u); err != nil {
		return nil, nil, err
	}
	store, err := bucket.NewMember(u.rules, o.Pools.of(u), o.Clock.Now)
	if err != nil {
		return nil, nil, err
	}
	checkpoints, err := newCheckpointer(ctx, o, u, store)
	if err != nil {
		return nil, nil, err
	}
	store.Former(former)
	called, err := u.hasCalls(ctx, o.JetStream)
	if err != nil {
		return nil, nil, err
	}
	store.ExpectSums(checkpoints.restored, called)
	u.before = checkpoints.restored.APIs
	if checkpoints.accounts, err = openAccounts(ctx, o, u, store, checkpoints.early); err != nil {
		return nil, nil, err
	}
	checkpoints.accounts.changed = checkpoints.now
	if u.pool {
		o.Pools.add(u.rules.In.Account, store, checkpoints.now)
	}
	return &Limits{state: checkpoints, settled: checkpoints.accounts.settled}, store, nil
}

// Run stores what the limits have counted until ctx ends. It returns an error if another process counts the limits now,
// or a *LateError if the late first answer of Redis would have refused the start. Either error ends the process.
func (a *Limits) Run(ctx context.Context) error { return a.state.run(ctx) }

// Drop removes an api's limits from those that are shown and that share accounts. It must be called if the limits are
// not going to run, so that the api can be opened again.
func (a *Limits) Drop() { a.drop() }

// WatchLevels reads the levels of an api's limits every second until ctx ends, with those of the api's account.
func (a *Limits) WatchLevels(ctx context.Context) error {
	return a.watch.run(ctx)
}

// AwaitExact blocks until every limit counts its exact use instead of an upper bound. It returns false if ctx ended
// first. Limits in Redis never count a bound.
func (a *Limits) AwaitExact(ctx context.Context) bool {
	if a.settled == nil {
		return true
	}
	select {
	case <-a.settled:
		return true
	case <-ctx.Done():
		return false
	}
}
