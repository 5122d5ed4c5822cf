package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
)

// Apis that share an account, in Redis.
//
// The apis of an account have one state, and one mark for it. Each api also has a mark of its own, which names the
// account that counts the api. If an api comes to an account after another state counted its calls, the account's state
// lacks these calls. The account's state then counts as lost, and is added up from the ledger. If the api comes back to
// a state of its own, its mark is later than that state, so that state also counts as lost. The state that the api has
// left refuses the api (redisstore.Move).

// ofAccount returns the suffix of a mark's epoch. It says that the account counts the api.
func ofAccount(account string) string { return "." + accountPrefix + account }

// counted returns the account that counts the mark's api; "" if the api has a state of its own.
func (m *redisMark) counted() string {
	_, account, _ := strings.Cut(m.Epoch, ofAccount(""))
	return account
}

// isStranger reports whether the account's state lacks calls of the api, because another state counted them.
func isStranger(rules bucket.Rules, own redisMark) bool {
	return rules.In != nil && own.Epoch != redisstore.Fresh && own.counted() != rules.In.Account
}

// leave makes the api's former state in Redis refuse the api, if the rules count the api in another state.
func (s *sharedLimits) leave(ctx context.Context, client redisstore.Client, rules bucket.Rules, own redisMark) error {
	from := own.counted()
	if from == accountOf(rules) {
		return nil
	}
	if own.Version > rules.Version {
		return redisstore.ErrBehind
	}
	return redisstore.Move(ctx, client, s.api, from, own.Epoch, rules.Version)
}

// join stores in the api's own mark that the account of rules counts the api from now on. It returns the api's mark. It
// stores nothing if the mark says so already, or if rules name no account.
func (s *sharedLimits) join(ctx context.Context, rules bucket.Rules, own redisMark) (redisMark, error) {
	if rules.In == nil || own.counted() == rules.In.Account {
		return own, nil
	}
	born, _, _ := strings.Cut(own.Epoch, ".")
	n, _ := strconv.ParseInt(born, 10, 64) // a mark without a number is earlier than every mark with one
	mark := redisMark{Epoch: strconv.FormatInt(n+1, 10) + ofAccount(rules.In.Account), Version: rules.Version}
	return mark, s.put(ctx, epochKey(s.api), mark)
}

// replace stores the mark of a state that is in use. It fails with redisstore.ErrBehind if a later configuration counts
// the api in another state. It checks that only if the mark is the api's own or the state has changed.
func (s *sharedLimits) replace(ctx context.Context, rules bucket.Rules, mark redisMark, changed bool) error {
	key := keyOf(s.api, rules)
	for tries := 0; rules.In == nil || changed; tries++ {
		newest, err := newestOf(ctx, s.js.Conn(), s.control, epochKey(s.api))
		if err != nil {
			return fmt.Errorf("the limits' mark: %w", err)
		}
		var own redisMark
		if err := json.Unmarshal(newest.Data, &own); err != nil {
			return fmt.Errorf("the limits' mark (%s in %s) cannot be read: %w", epochKey(s.api), s.control.Bucket(), err)
		}
		if own.counted() != accountOf(rules) {
			return redisstore.ErrBehind
		}
		if rules.In != nil {
			break
		}
		// another replica may replace the mark at the same time
		if err := s.put(ctx, key, mark, newest.Seq); err == nil || tries == 3 {
			return err
		}
	}
	return s.put(ctx, key, mark)
}

// errMoved reports that the api was moved to another state meanwhile.
var errMoved = errors.New("the configuration has changed meanwhile")

// grantID identifies a grant among all grants of an api. The serial alone does not, because each state counts its own
// serials.
type grantID struct {
	serial int64
	at     bucket.Micros
}

func idOf(g *bucket.Grant) grantID { return grantID{g.Serial, g.At} }

// formerSlot is a state that the api has left, with the grants of that state that have not ended.
type formerSlot struct {
	account string
	store   *redisstore.Store
	open    map[grantID]struct{}
	owed    []bucket.Use // uses that the state has not stored yet: at most one for each grant, and at most mostOwed
	until   time.Time    // when the calls of these grants have ended and are recorded
}

// mostOwed bounds formerSlot.owed.
const mostOwed = 4096

// mostFormers bounds the former states of an api; the oldest are dropped.
const mostFormers = 8

// leaseOf returns the longest time that a call of the api, or of another api of the same account, may run.
func leaseOf(rules bucket.Rules) bucket.Micros {
	lease := rules.LeaseMicros()
	if rules.In != nil {
		lease = max(lease, (bucket.Rules{Lease: rules.In.Lease}).LeaseMicros())
	}
	return lease
}

func accountOf(rules bucket.Rules) string {
	if rules.In == nil {
		return ""
	}
	return rules.In.Account
}

// moveLocked lets another state count the api from now on: that of an account, or the api's own. The api's calls wait
// until that state is open.
func (s *sharedLimits) moveLocked(rules bucket.Rules) error {
	if err := rules.Validate(); err != nil {
		return err
	}
	if store := s.store.Load(); store != nil {
		until := time.Now().Add(time.Duration(leaseOf(s.rules))*time.Microsecond + recordWait)
		s.formers = append(s.formers, &formerSlot{account: accountOf(s.rules), store: store, open: s.open, until: until})
		s.formers = s.formers[max(0, len(s.formers)-mostFormers):]
	}
	s.store.Store(nil)
	s.moves++
	s.closed = nil
	s.rules, s.open, s.doubt = rules, map[grantID]struct{}{}, true
	s.wake()
	return nil
}

// settleFormer settles the uses of grants that former states gave, and returns all other uses. If a former state cannot
// store a use now, retryFormers tries again later.
func (s *sharedLimits) settleFormer(ctx context.Context, uses []bucket.Use) (rest []bucket.Use) {
	s.mu.Lock()
	if len(s.formers) == 0 {
		s.mu.Unlock()
		return uses
	}
next:
	for _, u := range uses {
		for _, f := range s.formers {
			_, open := f.open[idOf(&u.Grant)]
			operation := u.Grant.Serial < 0 && u.Hold == 0 // the operation may still hold a slot of the former state
			if (open || operation) && len(f.owed) < mostOwed {
				f.owed = append(f.owed, u)
			}
			if open {
				continue next
			}
		}
		rest = append(rest, u)
	}
	s.mu.Unlock()
	s.retryFormers(ctx)
	return rest
}

// retryFormers sends the former states the uses that they have not stored yet. It drops the former states whose calls
// have all ended.
func (s *sharedLimits) retryFormers(ctx context.Context) {
	s.mu.Lock()
	s.formers = slices.DeleteFunc(s.formers, func(f *formerSlot) bool { return time.Now().After(f.until) })
	formers := slices.Clone(s.formers)
	s.mu.Unlock()
	for _, f := range formers {
		s.mu.Lock()
		owed := f.owed
		f.owed = nil
		s.mu.Unlock()
		if len(owed) == 0 {
			continue
		}
		err := f.store.Settle(ctx, owed)
		s.mu.Lock()
		if err != nil {
			f.owed = append(owed, f.owed...)
			f.owed = f.owed[:min(len(f.owed), mostOwed)]
		} else {
			for k := range owed {
				delete(f.open, idOf(&owed[k].Grant))
			}
		}
		s.mu.Unlock()
		if err != nil {
			s.log.Warn("could not store the ends of calls in the state of the limits that the api has left; trying again",
				"account", f.account, "until", f.until, "err", err)
		}
	}
}
