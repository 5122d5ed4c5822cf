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
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// sharedLimits are one api's limits in Redis, protected against a loss of Redis. A mark in NATS identifies their state
// in Redis; the mark is stored before the first slot of the state is used. What a lost state had counted is added up
// from the ledger.
type sharedLimits struct {
	api     string
	redis   *Redis
	store   atomic.Pointer[redisstore.Store] // nil while the limits are closed
	control jetstream.KeyValue
	js      jetstream.JetStream
	log     *slog.Logger
	clock   clockWatch
	quiet   func() bool   // reports whether no call of the api runs in this process or waits to be recorded
	beside  func() bool   // reports whether other replicas call too
	lost    chan struct{} // wakes run: the state may have been lost
	pools   *Pools        // knows the other apis of the account

	mu      sync.Mutex // guards the fields from rules to why
	rules   bucket.Rules
	kept    redisMark            // the mark of the state that counts the api
	own     redisMark            // the api's own mark, which says which state counts the api (accountmark.go)
	moves   int                  // how often the api has moved to another state
	formers []*formerSlot        // states that the api has left
	doubt   bool                 // some limits may not know their use
	open    map[grantID]struct{} // grants that have not ended
	closed  error                // why the last attempt to open the limits failed; nil before the first
	why     string               // why the lost use could not be added up yet, and what to do

	gaps  gaps // calls that the ledger could not tell
	news  news
	moved func(by time.Duration) // called when Redis's clock was set
}

// redisMark identifies a state, and says how many requests for slots the state had counted.
type redisMark struct {
	Epoch   string `json:"epoch"`
	Asked   int64  `json:"asked"`
	Version int64  `json:"version,omitempty"` // of the rules that put the api into an account
}

const (
	markEvery = time.Second
	markWait  = 2 * time.Second
)

// openSharedLimits opens an api's limits in Redis. If Redis does not answer, it returns limits that are still closed:
// calls wait, and run opens the limits later.
func openSharedLimits(ctx context.Context, o *Options, api *httpcall.API) (*sharedLimits, error) {
	s := &sharedLimits{
		api: api.Name, control: o.Control, js: o.JetStream, rules: api.Rules, open: map[grantID]struct{}{}, lost: make(chan struct{}, 1),
		redis: o.Redis, log: o.Log.With("component", "limits", "api", api.Name), quiet: func() bool { return o.Caller.Quiet(api.Name) },
		beside: func() bool { return o.Caller.Beside() }, pools: o.Pools,
	}
	o.Pools.join(s)
	s.moved = func(by time.Duration) { s.news.calendarMoved(o, api.Name, by) }
	if err := s.recall(ctx); err != nil {
		o.Pools.drop(s)
		return nil, err
	}
	client, err := s.redis.reached()
	if err != nil {
		return s, nil //nolint:nilerr // run opens them
	}
	if s.closed = s.begin(ctx, client); s.closed != nil && !errors.Is(s.closed, redisstore.ErrBehind) {
		o.Pools.drop(s)
		return nil, s.closed
	}
	return s, nil // after ErrBehind, run opens them once this replica has followed the newer configuration
}

// tryOpen reaches Redis and opens the limits.
func (s *sharedLimits) tryOpen(ctx context.Context) error {
	client, err := s.redis.reach(ctx)
	if err != nil {
		return err
	}
	return s.begin(ctx, client)
}

// begin opens the limits. It stores the state's mark before the limits are used, so weir does not take a state that is
// lost later for a new one. If another state counted the api until now, begin first makes that state refuse the api.
func (s *sharedLimits) begin(ctx context.Context, client redisstore.Client) error {
	s.mu.Lock()
	rules, kept, own, moves := s.rules, s.kept, s.own, s.moves
	s.mu.Unlock()
	if err := s.leave(ctx, client, rules, own); err != nil {
		return err
	}
	store, err := redisstore.New(ctx, redisstore.Options{
		Client: client, API: s.api, Rules: rules, Epoch: kept.Epoch, Asked: kept.Asked, Horizon: schedule.MostAhead, Sums: true,
		Uncalled: own.Epoch == redisstore.Fresh, Stranger: isStranger(rules, own),
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
	if err := s.put(ctx, keyOf(s.api, rules), mark); err != nil {
		return err
	}
	joined, err := s.join(ctx, rules, own)
	if err != nil {
		return err
	}
	if kept.Epoch != redisstore.Fresh && kept.Epoch != mark.Epoch {
		s.log.Warn("the limits begin a new state in redis: earlier use counts as used until the ledger is added up", "epoch", mark.Epoch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves != moves {
		return errMoved
	}
	if err := store.Apply(s.rules); err != nil {
		return err
	}
	s.doubt, s.kept, s.own = true, mark, joined
	s.store.Store(store)
	s.wake()
	return nil
}

// opened returns the store; if the limits are closed, the error says why.
func (s *sharedLimits) opened() (*redisstore.Store, error) {
	if store := s.store.Load(); store != nil {
		return store, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	return nil, redisstore.ErrUnreachable
}

// recall reads the mark of the state that counts the api, and the api's own mark.
func (s *sharedLimits) recall(ctx context.Context) error {
	s.mu.Lock()
	rules, moves := s.rules, s.moves
	s.mu.Unlock()
	kept, err := s.readMark(ctx, keyOf(s.api, rules), rules.APIs(s.api))
	own := kept
	if err == nil && rules.In != nil {
		own, err = s.readMark(ctx, epochKey(s.api), []string{s.api})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves != moves {
		return errMoved
	}
	s.kept, s.own = kept, own
	return nil
}

// readMark reads a mark. If no mark is stored and none of the apis was ever called, readMark returns one with the epoch
// redisstore.Fresh.
func (s *sharedLimits) readMark(ctx context.Context, key string, apis []string) (mark redisMark, err error) {
	kept, err := newestOf(ctx, s.js.Conn(), s.control, key)
	if err != nil {
		return mark, fmt.Errorf("limits of the last run: %w", err)
	}
	if len(kept.Data) > 0 {
		if err := json.Unmarshal(kept.Data, &mark); err != nil {
			return mark, fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", key, s.control.Bucket(), err)
		}
		return mark, nil
	}
	called, err := (&unit{apis: apis}).hasCalls(ctx, s.js)
	if err == nil && !called {
		mark.Epoch = redisstore.Fresh
	}
	return mark, err
}

// keyOf returns the key of the mark of the state that counts an api by rules.
func keyOf(api string, rules bucket.Rules) string {
	if in := rules.In; in != nil {
		return epochKey(accountPrefix + in.Account)
	}
	return epochKey(api)
}

func epochKey(api string) string { return "epoch." + api }

// Reserve implements bucket.Store. If the state has changed and its mark was not stored yet, Reserve stores the mark
// and returns an error. The slots that Redis granted are then lost.
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
	doubt = doubt || s.doubt // doubt may have begun or ended while Redis answered
	known := store.Epoch() == s.kept.Epoch
	if known {
		for i := range answers {
			for k := range answers[i].Grants {
				s.open[idOf(&answers[i].Grants[k])] = struct{}{}
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

// softenLocked changes an answer that lets a job wait for a quota or budget. It is called while some limits may not
// know their use, so the limit may only seem to be used up. No job is then buried for it, and it is asked again soon.
func (s *sharedLimits) softenLocked(a *bucket.Answer) {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == a.Wait.Limit && (l.Quota != nil || l.Budget != nil) && !a.Wait.Never {
			a.Wait.Exhausted = ""
			a.Wait.Until = min(a.Wait.Until, a.Now.Add(seedRetry))
		}
	}
}

// SlotTime returns the time of the clock by which Redis grants slots.
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
	uses = s.settleFormer(ctx, uses)
	if err := store.Settle(ctx, uses); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range uses {
		delete(s.open, idOf(&uses[i].Grant))
	}
	return nil
}

// Apply puts new rules in force.
func (s *sharedLimits) Apply(rules bucket.Rules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if accountOf(rules) != accountOf(s.rules) {
		return s.moveLocked(rules)
	}
	if store := s.store.Load(); store != nil {
		if err := store.Apply(rules); err != nil {
			return err
		}
	}
	s.rules, s.doubt = rules, true
	s.wake()
	return nil
}

// suspect makes run check whether any limit's use is unknown.
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

// keep stores the state's mark if it has changed. It fails with redisstore.ErrBehind if a later configuration, which
// this replica has not followed yet, counts the api in another state.
func (s *sharedLimits) keep(ctx context.Context) error {
	s.mu.Lock()
	store, rules := s.store.Load(), s.rules
	if store == nil {
		s.mu.Unlock()
		return redisstore.ErrUnreachable
	}
	var mark redisMark
	mark.Epoch, mark.Asked = store.Mark()
	same, changed := mark == s.kept, mark.Epoch != s.kept.Epoch
	s.mu.Unlock()
	if same {
		return nil
	}
	if changed {
		s.log.Warn("the limits begin a new state in redis: earlier use counts as used until the ledger is added up", "epoch", mark.Epoch)
		s.suspect()
	}
	if err := s.replace(ctx, rules, mark, changed); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.Load() == store {
		s.kept = mark
	}
	return nil
}

// put stores a mark. If a revision is given, put replaces only that revision.
func (s *sharedLimits) put(ctx context.Context, key string, mark redisMark, revision ...uint64) error {
	data, err := json.Marshal(mark)
	if err != nil {
		panic("a mark that JSON cannot carry: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, markWait)
	defer cancel()
	if len(revision) > 0 {
		_, err = s.control.Update(ctx, key, data, revision[0])
	} else {
		_, err = s.control.Put(ctx, key, data)
	}
	if err != nil {
		return fmt.Errorf("the limits' mark: %w", err)
	}
	return nil
}

// run keeps the stored mark of the limits' state up to date until ctx ends. Whenever the state may have been lost, run
// opens the limits if they are closed, and adds up from the ledger what the lost state had counted.
func (s *sharedLimits) run(ctx context.Context) error {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	if err := s.awaitOpen(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-tick.C:
			if err := s.keep(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("could not note the state of the limits in redis", "err", err)
			}
			s.retryFormers(ctx)
		case <-s.lost:
			if err := s.awaitOpen(ctx); err != nil {
				return err
			}
			s.seed(ctx)
		case <-ctx.Done():
			if s.store.Load() == nil { // nothing is open, so no mark has changed
				return nil
			}
			return s.keep(context.WithoutCancel(ctx))
		}
	}
}

// awaitOpen opens the limits if they are closed. It tries every second until it succeeds or ctx ends. Its only error is
// a *LateError, which ends the process.
func (s *sharedLimits) awaitOpen(ctx context.Context) error {
	told := ""
	for s.store.Load() == nil && ctx.Err() == nil {
		err := s.recall(ctx)
		if err == nil {
			err = s.tryOpen(ctx)
		}
		if late := (*LateError)(nil); errors.As(err, &late) && ctx.Err() == nil {
			return late
		}
		s.mu.Lock()
		s.closed = err
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.log.Warn("the limits are not ready yet: calls wait; trying again", "err", err)
		}
		if err != nil && ctx.Err() == nil {
			stream.Sleep(ctx, markEvery)
		}
	}
	return nil
}
