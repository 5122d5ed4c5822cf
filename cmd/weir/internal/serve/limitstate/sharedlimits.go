package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// sharedLimits are one api's limits in Redis, protected against a loss of Redis. A mark that identifies their state is
// kept in NATS before the first slot of the state is used. What a lost state had counted is added up from the ledger.
type sharedLimits struct {
	api     string
	redis   *Redis
	store   atomic.Pointer[redisstore.Store] // nil until Redis has answered once
	control jetstream.KeyValue
	js      jetstream.JetStream
	log     *slog.Logger
	clock   clockWatch
	quiet   func() bool   // reports that no call of the api runs here or waits to be recorded
	beside  func() bool   // reports whether other replicas call too
	lost    chan struct{} // the state may have been lost

	mu    sync.Mutex // guards all below
	rules bucket.Rules
	kept  redisMark
	doubt bool               // some of what was counted may be unknown
	open  map[int64]struct{} // grants that have not ended
	why   string             // why what was lost could not be added up yet, and what to do

	gaps  gaps // in what was added up
	news  news
	moved func(by time.Duration) // the clock of Redis was set
}

// redisMark identifies a state, with the number of asks it had counted.
type redisMark struct {
	Epoch string `json:"epoch"`
	Asked int64  `json:"asked"`
}

const (
	markEvery = time.Second
	markWait  = 2 * time.Second
)

// openSharedLimits opens an api's limits in Redis. While Redis does not answer they stay closed: calls wait, and run
// opens the limits later.
func openSharedLimits(ctx context.Context, o *Options, api *httpcall.API) (*sharedLimits, error) {
	s := &sharedLimits{
		api: api.Name, control: o.Control, js: o.JetStream, rules: api.Rules, open: map[int64]struct{}{}, lost: make(chan struct{}, 1),
		redis: o.Redis, log: o.Log.With("component", "limits", "api", api.Name), quiet: func() bool { return o.Caller.Quiet(api.Name) },
		beside: func() bool { return o.Caller.Beside() },
	}
	s.moved = func(by time.Duration) { s.news.calendarMoved(o, api.Name, by) }
	if err := s.recall(ctx); err != nil {
		return nil, err
	}
	client, err := s.redis.reached()
	if err != nil {
		return s, nil //nolint:nilerr // run opens them
	}
	return s, s.begin(ctx, client)
}

// tryOpen reaches Redis and opens the limits.
func (s *sharedLimits) tryOpen(ctx context.Context) error {
	client, err := s.redis.reach(ctx)
	if err != nil {
		return err
	}
	return s.begin(ctx, client)
}

// begin opens the limits. It stores the state's mark before they are used, so that no later loss is taken for a new
// state.
func (s *sharedLimits) begin(ctx context.Context, client redisstore.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	store, err := redisstore.New(ctx, redisstore.Options{
		Client: client, API: s.api, Rules: s.rules, Epoch: s.kept.Epoch, Asked: s.kept.Asked, Horizon: schedule.MostAhead, Sums: true,
	})
	if errors.Is(err, redisstore.ErrEviction) {
		return fmt.Errorf("%w: redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf", err)
	}
	if err != nil {
		return err
	}
	if _, err := store.Touch(ctx); err != nil {
		return err
	}
	mark := redisMark{}
	mark.Epoch, mark.Asked = store.Mark()
	if err := s.put(ctx, mark); err != nil {
		return err
	}
	if s.kept.Epoch != redisstore.Fresh && s.kept.Epoch != mark.Epoch {
		s.log.Warn("the limits begin a new state in redis: earlier use counts as used until the ledger is added up", "epoch", mark.Epoch)
	}
	s.doubt = true
	s.kept = mark
	s.store.Store(store)
	s.wake()
	return nil
}

// opened returns the store, or why there is none yet.
func (s *sharedLimits) opened() (*redisstore.Store, error) {
	if store := s.store.Load(); store != nil {
		return store, nil
	}
	return nil, redisstore.ErrUnreachable
}

// recall finds which state the api's limits had. An api with neither a mark nor a recorded call was never called.
func (s *sharedLimits) recall(ctx context.Context) error {
	entry, err := s.control.Get(ctx, s.key())
	if err == nil {
		if err := json.Unmarshal(entry.Value(), &s.kept); err != nil {
			return fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", s.key(), s.control.Bucket(), err)
		}
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("limits of the last run: %w", err)
	}
	called, err := hasCalls(ctx, s.js, s.api)
	if err != nil {
		return err
	}
	if !called {
		s.kept.Epoch = redisstore.Fresh
	}
	return nil
}

func (s *sharedLimits) key() string { return epochKey(s.api) }

func epochKey(api string) string { return "epoch." + api }

// hasCalls reports whether the ledger has any call of an api.
func hasCalls(ctx context.Context, js jetstream.JetStream, api string) (bool, error) {
	last, err := stream.LastOf(ctx, js.Conn(), ledger.CallsStream, ledger.CallsOf(api))
	if err != nil {
		return false, fmt.Errorf("ledger: %w", err)
	}
	return last > 0, nil
}

// Reserve implements bucket.Store. It withholds slots of a state whose mark is not stored yet; they are lost.
func (s *sharedLimits) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	store, err := s.opened()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	doubt := s.doubt
	s.mu.Unlock()
	answers, err := store.Reserve(ctx, asks)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	doubt = doubt || s.doubt // doubt may have ended since the answer was given
	known := store.Epoch() == s.kept.Epoch
	if known {
		for i := range answers {
			for _, g := range answers[i].Grants {
				s.open[g.Serial] = struct{}{}
			}
			if doubt {
				s.softenLocked(&answers[i])
			}
		}
	}
	s.mu.Unlock()
	if known {
		return answers, nil
	}
	if err := s.keep(ctx); err != nil {
		return nil, err
	}
	return nil, errors.New("the limits' state in redis has changed")
}

// softenLocked changes the answer of a quota that may count as used up only because its use is unknown. Such a quota is
// asked again soon: its period may not be over, and no job may be buried for it.
func (s *sharedLimits) softenLocked(a *bucket.Answer) {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == a.Wait.Limit && (l.Quota != nil || l.Budget != nil) && !a.Wait.Never {
			a.Wait.Exhausted = ""
			a.Wait.Until = min(a.Wait.Until, a.Now.Add(seedRetry))
		}
	}
}

// SlotTime returns what the clock of the slots reads.
func (s *sharedLimits) SlotTime(ctx context.Context) (bucket.Micros, error) {
	store, err := s.opened()
	if err != nil {
		return 0, err
	}
	return store.SlotTime(ctx)
}

// Settle implements bucket.Store.
func (s *sharedLimits) Settle(ctx context.Context, uses []bucket.Use) error {
	store, err := s.opened()
	if err != nil {
		return err
	}
	if err := store.Settle(ctx, uses); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range uses {
		delete(s.open, uses[i].Grant.Serial)
	}
	return nil
}

// Apply puts new rules in force.
func (s *sharedLimits) Apply(rules bucket.Rules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if store := s.store.Load(); store != nil {
		if err := store.Apply(rules); err != nil {
			return err
		}
	}
	s.rules, s.doubt = rules, true
	s.wake()
	return nil
}

// suspect makes run check whether something was lost.
func (s *sharedLimits) suspect() {
	s.mu.Lock()
	s.doubt = true
	s.mu.Unlock()
	s.wake()
}

// wake makes run check at once. It does not block.
func (s *sharedLimits) wake() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// keep stores the state's mark.
func (s *sharedLimits) keep(ctx context.Context) error {
	store, err := s.opened()
	if err != nil {
		return err
	}
	var mark redisMark
	mark.Epoch, mark.Asked = store.Mark()
	s.mu.Lock()
	same, changed := mark == s.kept, mark.Epoch != s.kept.Epoch
	s.mu.Unlock()
	if same {
		return nil
	}
	if changed {
		s.log.Warn("the limits begin a new state in redis: earlier use counts as used until the ledger is added up", "epoch", mark.Epoch)
		s.suspect()
	}
	if err := s.put(ctx, mark); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = mark
	return nil
}

func (s *sharedLimits) put(ctx context.Context, mark redisMark) error {
	data, err := json.Marshal(mark)
	if err != nil {
		panic("a mark that JSON cannot carry: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, markWait)
	defer cancel()
	if _, err := s.control.Put(ctx, s.key(), data); err != nil {
		return fmt.Errorf("the limits' mark: %w", err)
	}
	return nil
}

// run keeps the mark up to date and adds up what was lost, until ctx ends.
func (s *sharedLimits) run(ctx context.Context) error {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	told := ""
	for s.store.Load() == nil {
		err := s.tryOpen(ctx)
		if late := (*LateError)(nil); errors.As(err, &late) && ctx.Err() == nil {
			return late
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.log.Warn("the limits are not ready yet: calls wait; trying again", "err", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			stream.Sleep(ctx, markEvery)
		}
	}
	for {
		select {
		case <-tick.C:
			if err := s.keep(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("could not note the state of the limits in redis", "err", err)
			}
		case <-s.lost:
			s.seed(ctx)
		case <-ctx.Done():
			return s.keep(context.WithoutCancel(ctx))
		}
	}
}
