package limitstate

import (
	"context"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
)

// Apis that share an account, in Redis.
//
// The apis of an account have one state, and one mark for it. Each api also has a mark of its own, which says in which
// account the api is counted. If calls of an api were counted elsewhere before it comes to an account, the account's
// state does not have these calls. The state then counts as lost, and is added up from the ledger. If the api comes
// back to a state of its own, its mark is later than that state, which then counts as lost, too.

// ofAccount returns the end of the epoch in the mark of an api that is counted in an account.
func ofAccount(account string) string { return "." + accountPrefix + account }

// isStrangerLocked reports whether the account's state does not have earlier calls of the api.
func (s *sharedLimits) isStrangerLocked() bool {
	in := s.rules.In
	return in != nil && s.own.Epoch != redisstore.Fresh && !strings.HasSuffix(s.own.Epoch, ofAccount(in.Account))
}

// joinLocked notes in which account the api is counted from now on.
func (s *sharedLimits) joinLocked(ctx context.Context) error {
	in := s.rules.In
	if in == nil || strings.HasSuffix(s.own.Epoch, ofAccount(in.Account)) {
		return nil
	}
	born, _, _ := strings.Cut(s.own.Epoch, ".")
	n, _ := strconv.ParseInt(born, 10, 64) // a mark without a number is earlier than every mark with one
	mark := redisMark{Epoch: strconv.FormatInt(n+1, 10) + ofAccount(in.Account)}
	if err := s.put(ctx, epochKey(s.api), mark); err != nil {
		return err
	}
	s.own = mark
	return nil
}

// grantID tells the grants of an api apart. States begin their serials independently of each other.
type grantID struct {
	serial int64
	at     bucket.Micros
}

func idOf(g *bucket.Grant) grantID { return grantID{g.Serial, g.At} }

// formerSlot is a state that the api has left, with the grants that the state counted and that have not ended.
type formerSlot struct {
	account string
	store   *redisstore.Store
	open    map[grantID]struct{}
	until   time.Time // by then the calls of these grants have ended and are recorded
}

// mostFormers bounds the former states.
const mostFormers = 8

// leaseOf returns how long a call of the api, or of another api of its account, may run.
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

// moveLocked moves the api to the state of another account, or to its own state. Calls wait until that state is open.
func (s *sharedLimits) moveLocked(rules bucket.Rules) error {
	if err := rules.Validate(); err != nil {
		return err
	}
	if store := s.store.Load(); store != nil {
		until := time.Now().Add(time.Duration(leaseOf(s.rules))*time.Microsecond + recordWait)
		s.formers = append(s.formers, formerSlot{accountOf(s.rules), store, s.open, until})
		s.formers = s.formers[max(0, len(s.formers)-mostFormers):]
	}
	s.store.Store(nil)
	s.rules, s.open, s.doubt = rules, map[grantID]struct{}{}, true
	s.wake()
	return nil
}

// settleFormer ends the grants that former states counted, and returns the uses of all other grants.
func (s *sharedLimits) settleFormer(ctx context.Context, uses []bucket.Use) (rest []bucket.Use, err error) {
	s.mu.Lock()
	formers := s.formers
	s.mu.Unlock()
	if len(formers) == 0 {
		return uses, nil
	}
	past := make([][]bucket.Use, len(formers))
	s.mu.Lock()
next:
	for _, u := range uses {
		for i := range formers {
			if _, open := formers[i].open[idOf(&u.Grant)]; open {
				past[i] = append(past[i], u)
				continue next
			}
			if u.Grant.Serial < 0 && u.Hold == 0 {
				past[i] = append(past[i], u) // an operation may still hold a slot there
			}
		}
		rest = append(rest, u)
	}
	s.mu.Unlock()
	for i := range formers {
		if len(past[i]) == 0 {
			continue
		}
		if err := formers[i].store.Settle(ctx, past[i]); err != nil {
			return nil, err
		}
		s.mu.Lock()
		for k := range past[i] {
			delete(formers[i].open, idOf(&past[i][k].Grant))
		}
		s.mu.Unlock()
	}
	return rest, nil
}
