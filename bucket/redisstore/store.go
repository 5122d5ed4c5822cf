// Package redisstore is the bucket.Store that several processes share. One Lua script repeats the reservation of
// package bucket.
//
// # Where things lie
//
// All Redis keys of one api carry the hash tag {weir:<api>}. So they share a slot of a Redis Cluster, and one
// reservation is one step of one server. The Redis keys of an api with an account carry {weir:account/<account>},
// followed by the api's name. The apis of an account share one state. In it, the fields of one api alone begin with the
// api's name and "|". The account has a sorted set of its own for the grants of all its apis.
//
//	<tag>:state        a hash: the counters of all shared limits
//	<tag>:open         a sorted set: the grants not yet settled (the in-flight permits), by end of lease
//	<tag>:log:<limit>  the log of a sliding quota
//	<tag>:key:<key>    the bucket of one key; expires when it was empty for the longest window of any key's rate
//
// One field of the state holds the Lines of the replicas (bucket/line.go). It is empty while nothing waits, and has at
// most 64 replicas with 32 tenants each. If it is lost, the next asks write it again.
//
// # Time
//
// Redis TIME inside the script is the only clock. Slots follow a clock in the state that never goes back. If TIME was
// set back, or a failover came to a machine whose clock is behind, the state's clock continues from its last time.
// Calendars follow TIME in both directions, and no period is granted twice, as in bucket/turnback.go. A replica's clock
// decides only which calendar periods the replica offers to the script. If Redis finds that its TIME is in none of
// them, the replica offers the periods around TIME.
//
// # Loss
//
// The state carries an epoch: the time when it began, and a random id. A caller that knows an epoch declares the state
// lost if the state is missing, is of an earlier epoch, or has counted fewer asks than the caller has seen. The last
// case occurs after a failover to a copy that lagged, or when an older copy was restored.
//
// Then everything unknown counts as used. Every rate owes all of its burst from the farthest slot that may have been
// granted, every quota is full for its present period, and all permits are taken for one lease. Keys whose state is
// gone wait likewise; Ask.Floor cannot shorten that. Store.Unknown names the quotas that count as full until Store.Seed
// sets their use, from the ledger. Only a caller whose Epoch is Fresh accepts an empty Redis.
//
// The script cannot detect one kind of older copy. New asks may make up for the lost ones before a caller that knows
// the higher count uses the copy. The copy has then lost the last part of the counts.
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

// Fresh is the Epoch of an api that has never been called: for it an empty Redis is no loss.
const Fresh = "fresh"

// Options configure a Store.
type Options struct {
	Client redis.UniversalClient // required; the Store does not close it
	API    string                // required: the api's name, a part of every key
	// Uncalled says that an api with an account has never been called. Stranger says that the api was called before,
	// and that the account's state lacks these calls. The account's limits, the api's own limits and the api's keys
	// then count as lost.
	Uncalled, Stranger bool
	Rules              bucket.Rules // required
	// Epoch is the last known epoch of the api's state, from a checkpoint: see Store.Epoch. It is empty if no epoch is
	// known, and Fresh if the api has never been called.
	Epoch string
	// Asked is how many asks that epoch's state had counted, from the same checkpoint. With it the Store recognizes an
	// older copy of the state, even if no process was there to see the change.
	Asked int64
	// Horizon is the farthest ahead that any replica asks; default 1 s. After a loss the wait is that much longer.
	Horizon time.Duration
	// Sums says that the caller also uses Unknown and Seed for quotas and budgets that some ask's rules did not have.
	// Such limits then count as full until they are seeded, as lost ones do. Without Sums, a limit that comes back into
	// the rules has the count that it had when it left them.
	Sums bool
}

// Store is a bucket.Store in Redis. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	own     string       // begins the Redis keys of the api alone; equals prefix without an account
	account string       // the account whose limits this store counts too; "" for none
	news    atomic.Int32 // Options.Uncalled or Stranger, until the state has answered once
	sums    bool         // Options.Sums
	made    time.Time
	now     func() bucket.Micros // only in tests: replaces Redis TIME
	horizon atomic.Int64         // the farthest ahead that any replica asks, in microseconds
	offset  atomic.Int64         // how far Redis was ahead when the offered periods were off, in microseconds

	version atomic.Int64 // bucket.Rules.Version, or a later one with the same rules

	rulesMu sync.RWMutex // guards rules, sign and orders; read-held over a round trip: costs and grants share the rules
	rules   bucket.Rules
	sign    string // bucket.Rules.AccountSign
	orders  bucket.Orders

	mu    sync.Mutex // guards what follows; taken while rulesMu is held, never the other way round
	epoch string
	seen  int64 // most asks of this epoch that an answer has counted
}

var _ bucket.Store = (*Store)(nil)

// ErrEviction says that a Redis may evict limits to make room. An evicted bucket would be full again.
var ErrEviction = errors.New("redis may evict limits; set maxmemory-policy noeviction")

// New checks the rules and the server's settings. It does not touch the state; the first call does.
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
	s := &Store{client: o.Client, prefix: ownPrefix(o.API), epoch: o.Epoch, seen: o.Asked, sums: o.Sums, made: time.Now()}
	s.takeRulesLocked(o.Rules)
	if s.own = s.prefix; o.Rules.In != nil {
		s.account, s.prefix = o.Rules.In.Account, accountPrefix(o.Rules.In.Account)
		s.own = s.prefix + o.API + "/"
	}
	switch {
	case o.Uncalled:
		s.news.Store(uncalled)
	case o.Stranger:
		s.news.Store(stranger)
	}
	s.horizon.Store(int64(o.Horizon / time.Microsecond))
	return s, nil
}

// What the state of an account does not know about an api.
const (
	nothing  = iota
	uncalled // the api was never called
	stranger // the api was called before it had the account
)

// checkEviction checks every primary.
func checkEviction(ctx context.Context, c redis.UniversalClient) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return checkPolicy(ctx, c) })
	}
	return checkPolicy(ctx, c)
}

// checkPolicy reads INFO, which managed servers allow, unlike CONFIG.
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

// Apply puts new rules in force from this replica's next round trip on. Replicas may follow a change at different
// times. Each reserves by its own rules, and debts are carried from one pace to another as in package bucket.
func (s *Store) Apply(rules bucket.Rules) error {
	if err := rules.Validate(); err != nil {
		return fmt.Errorf("redis limits: %w", err)
	}
	if in := rules.In; in != nil && in.Account != s.account || in == nil && s.account != "" {
		return errors.New("redis limits: the rules name another account, which needs another Store")
	}
	s.rulesMu.Lock()
	defer s.rulesMu.Unlock()
	s.mu.Lock()
	below := (s.seen + 1) * bucket.MaxWant // no round trip is under way
	s.mu.Unlock()
	s.orders.Change(below, s.rules.Shared)
	s.takeRulesLocked(rules)
	return nil
}

// Reserve implements bucket.Store. It sends all asks in one round trip, as one atomic step.
func (s *Store) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	for i := range asks {
		if err := asks[i].Validate(s.rules); err != nil {
			return nil, fmt.Errorf("request %d, of key %q, is invalid: %w", i, asks[i].Key, err)
		}
	}
	r, err := s.run(ctx, func() *request {
		r := s.beginLocked("reserve", len(asks))
		r.num(int64(len(asks)))
		r.line(asks[0].Line)
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

// Settle implements bucket.Store. A settlement that is repeated after an error gives nothing back twice, but may charge
// an overage twice. A call without uses still brings new rules into force, and fails if Reserve would.
func (s *Store) Settle(ctx context.Context, uses []bucket.Use) error {
	if len(uses) == 0 {
		_, _, err := s.touch(ctx)
		return err
	}
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
	if err != nil && !errors.Is(err, ErrBehind) { // the api has left this state, which counts nothing of it any more
		return fmt.Errorf("settle in redis: %w", err)
	}
	return nil
}

// run calls the script, three times at most. If Redis finds its time outside the offered periods, run offers other
// periods by that time. It also repeats the request if the api has come back to a state that it had left.
func (s *Store) run(ctx context.Context, build func() *request) (*reader, error) {
	for range 3 {
		q := build()
		fields, err := script.Run(ctx, once{s.client}, q.keys, q.argv...).Slice()
		if err != nil {
			return nil, err
		}
		r := &reader{fields: fields}
		told := r.str()
		if told == "ok" || told == "awaits" {
			epoch, asked := r.str(), r.num()
			r.now, r.behind = bucket.Micros(r.num()), bucket.Micros(r.num())
			if r.err != nil {
				return nil, r.err
			}
			if err := s.learn(epoch, asked); errors.Is(err, errAgain) {
				continue
			} else if err != nil {
				return nil, err
			}
			s.news.Store(nothing)
			if told == "awaits" {
				return r, awaits(r.str())
			}
			return r, nil
		}
		if told == "behind" {
			return nil, ErrBehind
		}
		theirs := r.num()
		if r.err != nil {
			return nil, r.err
		}
		s.offset.Store(theirs - int64(bucket.MicrosOf(time.Now())))
	}
	return nil, errors.New("the server's clock runs through calendar periods faster than they can be offered")
}

// learn notes the state's epoch and count of asks. Answers may come out of order. Within an epoch the count only rises.
// If the answer of an earlier epoch comes late, the next answer corrects it.
func (s *Store) learn(epoch string, asked int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		if strings.Contains(epoch, leftEpoch) {
			return s.comeBackLocked(epoch)
		}
		s.epoch, s.seen = epoch, 0
	}
	s.seen = max(s.seen, asked)
	return nil
}

// Epoch returns the state's identity. Store it in a checkpoint and pass it to New after a restart.
func (s *Store) Epoch() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Mark returns the state's identity and how many asks it had counted. Store both in a checkpoint and pass them to New
// after a restart.
func (s *Store) Mark() (epoch string, asked int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.seen
}

// Touch creates the state, or finds out that it was lost, without reserving anything. It returns the server's time.
// Touch also tells the account's state that the api has come.
func (s *Store) Touch(ctx context.Context) (bucket.Micros, error) {
	now, _, err := s.touch(ctx)
	if errors.Is(err, ErrAwaits) {
		err = nil
	}
	return now, err
}

// SlotTime returns the time of the slots' clock, as Answer.Now does, without reserving anything. It fails if Reserve
// would.
func (s *Store) SlotTime(ctx context.Context) (bucket.Micros, error) {
	now, behind, err := s.touch(ctx)
	return now + behind, err
}

// touch is Touch, except that it fails if Reserve would. behind is by how much the server's time is behind the slots'
// clock.
func (s *Store) touch(ctx context.Context) (now, behind bucket.Micros, err error) {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	r, err := s.run(ctx, func() *request {
		return s.beginLocked("touch", 0)
	})
	if r == nil {
		return 0, 0, fmt.Errorf("reach the limits in redis: %w", err)
	}
	return r.now - r.behind, r.behind, err
}

// ShadowHolds returns for every shadow limit how many calls it would have held so far, over all replicas; nil if Redis
// does not answer within 1 s.
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
		n, err := s.client.HGet(ctx, s.prefix+"state", s.fieldOf(&l)+":h").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil
		}
		holds[l.Name] = n
	}
	return holds
}

// present returns roughly the server's time. It decides only which periods the replica offers.
func (s *Store) present() bucket.Micros {
	if s.now != nil {
		return s.now()
	}
	return bucket.MicrosOf(time.Now()) + bucket.Micros(s.offset.Load())
}

// newEpoch returns an id for a new state, if one must be created.
func (s *Store) newEpoch() string { return rand.Text() }
