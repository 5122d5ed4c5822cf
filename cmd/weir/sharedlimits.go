package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/config"
	"weir/dispatcher"
)

// sharedLimits are one api's limits in Redis, with what makes a loss of Redis harmless: what its state was is kept in
// NATS, before the first slot of it is used, and what a lost state had counted is added up from the ledger.
type sharedLimits struct {
	api     string
	store   *redisstore.Store
	control jetstream.KeyValue
	js      jetstream.JetStream
	log     *slog.Logger
	quiet   func() bool   // no call of the api is running or waits to be recorded
	lost    chan struct{} // the state may have been lost

	mu    sync.Mutex
	rules bucket.Rules
	kept  redisMark
	doubt bool               // some of what was counted may be unknown
	open  map[int64]struct{} // grants that have not ended
	why   string             // what was lost could not be added up yet, and what to do
}

// redisMark is what is kept of a state: which one it is, and how many asks it had counted.
type redisMark struct {
	Epoch string `json:"epoch"`
	Asked int64  `json:"asked"`
}

const (
	markEvery  = time.Second
	markWait   = 2 * time.Second
	seedRetry  = time.Second
	seedPoll   = 20 * time.Millisecond
	seedWithin = 5 * time.Minute // the longest the ledger may take to be added up
)

// dialRedis connects to the Redis that limits are shared in; nil when they are not shared.
func dialRedis(ctx context.Context, s *config.Settings) (redisstore.Client, error) {
	if !s.RedisURL.IsSet() || !s.Has(config.RoleDispatch) {
		return nil, nil //nolint:nilnil // no address is no error: limits are counted in the process
	}
	client, err := redisstore.Dial(ctx, s.RedisURL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("WEIR_REDIS_URL %s: %w", s.RedisURL, err)
	}
	return client, nil
}

// openSharedLimits opens an api's limits in Redis. The state's mark is stored before it returns, so that no later loss
// is taken for a beginning.
func openSharedLimits(ctx context.Context, w *Worker, api *dispatcher.API) (*sharedLimits, error) {
	s := &sharedLimits{
		api: api.Name, control: w.control, js: w.js, rules: api.Rules, open: map[int64]struct{}{}, lost: make(chan struct{}, 1),
		log: w.log.With("component", "limits", "api", api.Name), quiet: func() bool { return w.dispatch.Quiet(api.Name) },
	}
	if err := s.recall(ctx); err != nil {
		return nil, err
	}
	var err error
	s.store, err = redisstore.New(ctx, redisstore.Options{
		Client: w.redis, API: api.Name, Rules: api.Rules, Epoch: s.kept.Epoch, Asked: s.kept.Asked, Horizon: dispatcher.MostAhead,
	})
	if errors.Is(err, redisstore.ErrEviction) {
		return nil, fmt.Errorf("%w: redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf", err)
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.store.Touch(ctx); err != nil {
		return nil, err
	}
	if s.kept.Epoch == redisstore.Fresh {
		s.kept = redisMark{Epoch: s.store.Epoch(), Asked: -1} // to be stored, and no loss
	}
	s.suspect()
	return s, s.keep(ctx)
}

// recall finds what state the api's limits had. An api of which neither a mark nor a call is recorded was never called.
func (s *sharedLimits) recall(ctx context.Context) error {
	entry, err := s.control.Get(ctx, s.key())
	if err == nil {
		if err := json.Unmarshal(entry.Value(), &s.kept); err != nil {
			return fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", s.key(), controlBucket, err)
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

// hasCalls reports whether the ledger knows any call of an api.
func hasCalls(ctx context.Context, js jetstream.JetStream, api string) (bool, error) {
	stream, err := js.Stream(ctx, dispatcher.CallsStream)
	if err != nil {
		return false, fmt.Errorf("ledger: %w", err)
	}
	_, err = stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(dispatcher.CallsOf(api)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Reserve implements bucket.Store. Slots of a state whose mark is not stored yet are not given: they are lost.
func (s *sharedLimits) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	answers, err := s.store.Reserve(ctx, asks)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.store.Epoch() == s.kept.Epoch
	if known {
		for i := range answers {
			for _, g := range answers[i].Grants {
				s.open[g.Serial] = struct{}{}
			}
			if s.doubt {
				s.soften(&answers[i])
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

// soften makes of a quota that may only count as used up, because nobody knows, one that is to be asked again soon: its
// period may not be over, and no job may be buried for it. Called with the lock held.
func (s *sharedLimits) soften(a *bucket.Answer) {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == a.Wait.Limit && (l.Quota != nil || l.Budget != nil) && !a.Wait.Never {
			a.Wait.Exhausted = ""
			a.Wait.Until = min(a.Wait.Until, a.Now.Add(seedRetry))
		}
	}
}

// Settle implements bucket.Store.
func (s *sharedLimits) Settle(ctx context.Context, uses []bucket.Use) error {
	if err := s.store.Settle(ctx, uses); err != nil {
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
	if err := s.store.Apply(rules); err != nil {
		return err
	}
	s.mu.Lock()
	s.rules = rules
	s.mu.Unlock()
	s.suspect()
	return nil
}

// suspect has run look whether something was lost.
func (s *sharedLimits) suspect() {
	s.mu.Lock()
	s.doubt = true
	s.mu.Unlock()
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// keep stores the state's mark.
func (s *sharedLimits) keep(ctx context.Context) error {
	var mark redisMark
	mark.Epoch, mark.Asked = s.store.Mark()
	s.mu.Lock()
	same, changed := mark == s.kept, mark.Epoch != s.kept.Epoch
	s.mu.Unlock()
	if same {
		return nil
	}
	if changed {
		s.log.Warn("the limits begin a new state in redis: what an earlier one had counted counts as used until the ledger tells", "epoch", mark.Epoch)
		s.suspect()
	}
	data, err := json.Marshal(mark)
	if err != nil {
		panic("a mark that JSON cannot carry: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, markWait)
	defer cancel()
	if _, err := s.control.Put(ctx, s.key(), data); err != nil {
		return fmt.Errorf("the limits' mark: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = mark
	return nil
}

// run keeps the mark up to date and seeds what was lost, until ctx ends.
func (s *sharedLimits) run(ctx context.Context) error {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.keep(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("the state of the limits in redis could not be noted", "err", err)
			}
		case <-s.lost:
			s.seed(ctx)
		case <-ctx.Done():
			return s.keep(context.WithoutCancel(ctx))
		}
	}
}

// unknown says why what was lost is not added up yet.
func (s *sharedLimits) unknown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// seed adds up from the ledger what quotas and budgets had counted that were lost, and tries again until it has.
func (s *sharedLimits) seed(ctx context.Context) {
	told := ""
	for ctx.Err() == nil {
		epoch := s.store.Epoch()
		_, err := s.store.Touch(ctx) // also brings new rules into force where debts are kept
		var unknown []string
		if err == nil {
			unknown, err = s.store.Unknown(ctx)
		}
		if err == nil && len(unknown) == 0 {
			s.mu.Lock()
			s.doubt, s.why = s.kept.Epoch != epoch, ""
			s.mu.Unlock()
			return
		}
		if err == nil {
			err = s.seedThese(ctx, unknown)
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.mu.Lock()
			s.why = told
			s.mu.Unlock()
			s.log.Warn("quotas count as used up until the ledger is added up; trying again", "limits", strings.Join(unknown, ", "), "err", err)
		}
		select {
		case <-time.After(seedRetry):
		case <-ctx.Done():
		}
	}
}

func (s *sharedLimits) seedThese(ctx context.Context, unknown []string) error {
	ctx, cancel := context.WithTimeout(ctx, seedWithin)
	defer cancel()
	s.mu.Lock()
	rules := s.rules
	s.mu.Unlock()
	var limits []bucket.Limit
	for _, l := range rules.Shared {
		if slices.Contains(unknown, l.Name) {
			limits = append(limits, l)
		}
	}
	if err := s.awaitQuiet(ctx, limits); err != nil {
		return err
	}
	now, err := s.store.Touch(ctx)
	if err != nil {
		return err
	}
	ahead := now.Until(bucket.MicrosOf(time.Now())) // periods are by the clock of redis, the ledger is by ours
	since := map[string]time.Time{}
	for i := range limits {
		since[limits[i].Name] = periodStart(rules, &limits[i], now).Time().Add(ahead)
	}
	used, err := readUsage(ctx, s.js, s.api, limits, since)
	if err != nil {
		return err
	}
	if err := s.store.Seed(ctx, used); err != nil {
		return err
	}
	s.log.Info("what quotas had counted was added up from the ledger", "limits", strings.Join(unknown, ", "))
	return nil
}

// awaitQuiet blocks until all that was called is in the ledger. Nothing new is called meanwhile, since what is unknown
// counts as used up, unless it only counts.
func (s *sharedLimits) awaitQuiet(ctx context.Context, limits []bucket.Limit) error {
	if !slices.ContainsFunc(limits, func(l bucket.Limit) bool { return !l.Shadow }) {
		return nil
	}
	tick := time.NewTicker(seedPoll)
	defer tick.Stop()
	for {
		s.mu.Lock()
		open := len(s.open)
		s.mu.Unlock()
		if open == 0 && s.quiet() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("calls are still running: %w", context.Cause(ctx))
		}
	}
}

// periodStart is since when what was used of a quota or budget counts at now.
func periodStart(rules bucket.Rules, l *bucket.Limit, now bucket.Micros) bucket.Micros {
	quota := quotaOf(l)
	if quota.Window == bucket.Sliding {
		life, _ := rules.SlidingBounds(*quota)
		return now - life
	}
	start, _ := quota.Period(now)
	return start
}

// quotaOf is a quota, or what a budget is one of.
func quotaOf(l *bucket.Limit) *bucket.Quota {
	if l.Budget != nil {
		return &l.Budget.Quota
	}
	return l.Quota
}
