// Package redisstore is the bucket.Store that several processes share: the reservation of package bucket in one Lua script.
//
// # Where things lie
//
// All keys of one api carry the hash tag {weir:<api>}, so that they share a slot of a Redis Cluster and one reservation
// is one step of one server. <tag>:state is a hash with the counters of all shared limits, <tag>:open a sorted set of the
// grants not yet settled (the in-flight permits, by end of lease), <tag>:log:<limit> a sliding quota's log and
// <tag>:key:<key> the bucket of one key, which expires when it has been empty for the longest window of any key's rate.
//
// # Time
//
// Redis TIME inside the script is the only clock. Slots go by a clock of the state that never goes back: where TIME was set back, or
// a failover came to a machine whose clock is behind, it goes on from where it was, and what was counted counts as of then. Calendars
// follow TIME in both directions, and no period is given out twice, as in bucket/turnback.go. No replica's clock
// decides anything, except which calendar periods are offered: if Redis finds itself outside them it says so, and they
// are offered again by its own time.
//
// # Loss
//
// The state carries an epoch: when it began, and a random id. A caller that knows an epoch and finds the state missing, of
// an earlier epoch, or with fewer asks counted than it has seen itself (a failover to a copy that lagged, an older copy
// restored), declares it lost:
// what cannot be known counts as used. Every rate starts with all of its burst owed from the farthest slot that may have
// been given, every quota is full for its present period, and all permits are taken for one lease. Keys whose state is
// gone wait likewise; Ask.Floor cannot shorten that. Store.Unknown names the quotas that wait to be told what was used of
// them, by Store.Seed from the ledger. A caller that is told Fresh believes an empty Redis; nobody else does.
//
// What no script can see: a copy that is older by fewer asks than have come since, seen by no caller that knew better,
// loses that suffix of the counts.
package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"weir/bucket"
)

// Fresh is the Epoch of an api that has never been called: an empty Redis is no loss.
const Fresh = "fresh"

// Options say what a Store works for.
type Options struct {
	Client redis.UniversalClient // required; not closed by the Store
	API    string                // required: the api's name, a part of every key
	Rules  bucket.Rules          // required
	// Epoch is the epoch that the api's state was last known to have, from a checkpoint: see Store.Epoch. Empty when nothing
	// is known, Fresh when the api has never been called.
	Epoch string
	// Asked is how many asks that epoch's state had counted when last known, from the same checkpoint: with it an older copy
	// of the state is told from the state even when nobody was there to see the change.
	Asked int64
	// Horizon is the farthest any replica asks ahead; default a second. After a loss that much more is waited.
	Horizon time.Duration
	// Sums says that Unknown is asked and Seed told also of quotas and budgets that were not in the rules of every ask: they count as
	// full until then, as those that were lost. Otherwise one that comes into the rules has used what it had counted when it was there.
	Sums bool
}

// Store is a bucket.Store in Redis. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	sums    bool // Options.Sums
	made    time.Time
	now     func() bucket.Micros // only in tests: the time instead of Redis TIME
	horizon atomic.Int64         // the farthest that any replica asks ahead, in microseconds
	offset  atomic.Int64         // how far Redis is ahead of us, in microseconds, when the offered periods were off

	rulesMu sync.RWMutex // guards rules and orders; it is held for reading over a round trip, so that costs and grants belong to the same rules
	rules   bucket.Rules
	orders  bucket.Orders

	mu    sync.Mutex // guards what follows; it is taken while rulesMu is held, never the other way round
	epoch string
	seen  int64 // asks counted by the state when it last answered
}

var _ bucket.Store = (*Store)(nil)

// ErrEviction is a Redis that may forget state to make room: a bucket that it forgets is full again.
var ErrEviction = errors.New("redis may evict limits; set maxmemory-policy noeviction")

// New checks the rules and the server's settings. The state itself is first touched by the first call.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Client == nil || o.API == "" || strings.ContainsAny(o.API, "{}") {
		return nil, fmt.Errorf("redis limits: client and api are required, and the api's name has no braces")
	}
	if err := o.Rules.Validate(); err != nil {
		return nil, fmt.Errorf("redis limits: %w", err)
	}
	if err := checkEviction(ctx, o.Client); err != nil {
		return nil, fmt.Errorf("redis limits: %w", err)
	}
	if o.Horizon <= 0 {
		o.Horizon = time.Second
	}
	s := &Store{client: o.Client, prefix: "{weir:" + o.API + "}:", rules: o.Rules, epoch: o.Epoch, seen: o.Asked, sums: o.Sums, made: time.Now()}
	s.horizon.Store(int64(o.Horizon / time.Microsecond))
	return s, nil
}

// checkEviction asks every primary.
func checkEviction(ctx context.Context, c redis.UniversalClient) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return checkPolicy(ctx, c) })
	}
	return checkPolicy(ctx, c)
}

// checkPolicy reads INFO, which unlike CONFIG managed servers allow.
func checkPolicy(ctx context.Context, c redis.Cmdable) error {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("read memory settings: %w", err)
	}
	if policy, ok := fields(info)["maxmemory_policy"]; ok && policy != "noeviction" {
		return fmt.Errorf("%w (it is %s)", ErrEviction, policy)
	}
	return nil
}

// Apply puts new rules in force for this replica's next round trip. Replicas that follow a change at different times each
// reserve by their own rules; debts are carried from one to the other as in package bucket.
func (s *Store) Apply(rules bucket.Rules) error {
	if err := rules.Validate(); err != nil {
		return fmt.Errorf("redis limits: %w", err)
	}
	s.rulesMu.Lock()
	defer s.rulesMu.Unlock()
	s.mu.Lock()
	below := (s.seen + 1) * bucket.MaxWant // no round trip is under way
	s.mu.Unlock()
	s.orders.Change(below, s.rules.Shared)
	s.rules = rules
	return nil
}

// Reserve implements bucket.Store: all asks in one round trip and one atomic step.
func (s *Store) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	for i := range asks {
		if err := asks[i].Validate(s.rules); err != nil {
			return nil, fmt.Errorf("ask %d, key %q: %w", i, asks[i].Key, err)
		}
	}
	r, err := s.run(ctx, func() *request {
		r := s.beginLocked("reserve", len(asks))
		r.num(int64(len(asks)))
		for i := range asks {
			s.askLocked(r, &asks[i])
		}
		return r
	})
	if err != nil {
		return nil, fmt.Errorf("reserve in redis: %w", err)
	}
	answers := make([]bucket.Answer, len(asks))
	for i := range answers {
		answers[i] = s.answerLocked(r)
	}
	if r.err != nil {
		return nil, fmt.Errorf("reserve in redis: %w", r.err)
	}
	return answers, nil
}

// Settle implements bucket.Store. A settlement that is repeated after an error gives nothing back twice; an overage may be
// charged twice. Settling nothing still brings new rules into force.
func (s *Store) Settle(ctx context.Context, uses []bucket.Use) error {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	_, err := s.run(ctx, func() *request {
		r := s.beginLocked("settle", len(uses))
		r.num(int64(len(uses)))
		for i := range uses {
			s.useLocked(r, &uses[i])
		}
		return r
	})
	if err != nil {
		return fmt.Errorf("settle in redis: %w", err)
	}
	return nil
}

// run calls the script. Periods that Redis finds itself outside of are offered again by its own time, once.
func (s *Store) run(ctx context.Context, build func() *request) (*reader, error) {
	for range 2 {
		q := build()
		fields, err := script.Run(ctx, s.client, q.keys, q.argv...).Slice()
		if err != nil {
			return nil, err
		}
		r := &reader{fields: fields}
		if r.str() == "ok" {
			epoch, asked := r.str(), r.num()
			r.now, r.behind = bucket.Micros(r.num()), bucket.Micros(r.num())
			if r.err == nil {
				s.learn(epoch, asked)
			}
			return r, r.err
		}
		theirs := r.num()
		if r.err != nil {
			return nil, r.err
		}
		s.offset.Store(theirs - int64(bucket.MicrosOf(time.Now())))
	}
	return nil, errors.New("the server's clock runs through calendar periods faster than they can be offered")
}

// learn keeps what the state says about itself. Answers may come out of order: within an epoch the count only rises, and an
// answer of an earlier epoch that comes late is corrected by the next.
func (s *Store) learn(epoch string, asked int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		s.epoch, s.seen = epoch, 0
	}
	s.seen = max(s.seen, asked)
}

// Epoch is the state's identity, to be kept with a checkpoint and given to New after a restart.
func (s *Store) Epoch() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Mark is the state's identity and how many asks it had counted, to be kept as a checkpoint and given to New after a
// restart.
func (s *Store) Mark() (epoch string, asked int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.seen
}

// Touch brings the state into being, or finds out that it was lost, without reserving anything, and returns the server's
// time.
func (s *Store) Touch(ctx context.Context) (bucket.Micros, error) {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	r, err := s.run(ctx, func() *request {
		r := s.beginLocked("settle", 0)
		r.num(0)
		return r
	})
	if err != nil {
		return 0, fmt.Errorf("reach the limits in redis: %w", err)
	}
	return r.now - r.behind, nil
}

// ShadowHolds tells for every shadow limit how many calls it would have held so far, over all replicas; nil when Redis
// does not answer within a second.
func (s *Store) ShadowHolds() map[string]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	holds := map[string]int64{}
	for _, l := range s.rules.Shared {
		if !l.Shadow {
			continue
		}
		n, err := s.client.HGet(ctx, s.prefix+"state", l.Name+":h").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil
		}
		holds[l.Name] = n
	}
	return holds
}

// present is about the time at the server: it only chooses which periods to offer.
func (s *Store) present() bucket.Micros {
	if s.now != nil {
		return s.now()
	}
	return bucket.MicrosOf(time.Now()) + bucket.Micros(s.offset.Load())
}

// newEpoch is an id for the case that the state has to be begun anew.
func (s *Store) newEpoch() string { return rand.Text() }
