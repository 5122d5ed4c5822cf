package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ask asks for slots for one key.
type Ask struct {
	Key    string
	Limits KeyLimits
	// Costs are the units each call takes from Rules.Shared, in that order; nil means one of each.
	Costs []int64
	Want  int // slots wanted, 1 to 64
	// Horizon bounds how far ahead of now a slot may lie. A later slot is not reserved; Wait names its time. A slot
	// that lies ahead because of one limit keeps the other limits idle until then, also for other keys. So under shared
	// limits use no more than the round trip to the store takes. A caller with a Horizon of 0 that asks again at
	// Wait.Until loses nothing.
	Horizon time.Duration
	// Floor is the least TAT of this key that the caller knows, 0 if none. It restores the key in a store that has
	// forgotten it.
	Floor Micros

	// Line says what waits where the ask comes from: the same Line for all asks of a round. It is nil if no other
	// process uses the Store, or if the ask is made out of turn.
	Line     *Line
	Tenant   string   // of the key, one of the Line's
	Priority Priority // of the job
	Service  Micros   // for how long the call uses up the limit that it burdens most; at least 1
}

// Validate returns what is wrong with an ask under rules. A Store refuses such an ask.
func (a *Ask) Validate(rules Rules) error {
	return errors.Join(a.validate(len(rules.Shared)), rules.validateRate(a.Limits.Rate))
}

func (a *Ask) validate(shared int) error {
	if a.Want < 1 || a.Want > MaxWant {
		return fmt.Errorf("wants %d slots, not 1 to %d", a.Want, MaxWant)
	}
	if a.Horizon < 0 {
		return fmt.Errorf("horizon %s lies in the past", a.Horizon)
	}
	if a.Costs != nil && len(a.Costs) != shared {
		return fmt.Errorf("names %d costs for %d shared limits", len(a.Costs), shared)
	}
	if l := a.Line; l != nil && (l.Replica == "" || l.More < 0 || l.Keys < 0 || len(l.Tenants) > MostTenants) {
		return fmt.Errorf("has a line of replica %q with %d tenants and %d more", l.Replica, len(l.Tenants), l.More)
	}
	if a.Line != nil {
		if w := a.Line.Weight; w < 0 || w > MostWeight {
			return fmt.Errorf("has a line of an api of weight %d, not 0 to %d", w, MostWeight)
		}
		if err := a.Line.Weights.Validate(); err != nil {
			return err
		}
	}
	for _, c := range a.Costs {
		if c < 0 || c > maxCost {
			return fmt.Errorf("cost %d is not within 0 to %d", c, int64(maxCost))
		}
	}
	return nil
}

// maxCost is the largest cost: exact in Lua, and far from overflowing a sum.
const maxCost = 1 << 52

// Grant is the right to start one call at At, and not later than At plus the api's jitter.
type Grant struct {
	At Micros
	// TAT is the key's theoretical arrival time after this grant. The ledger keeps it so that a restart continues from
	// it.
	TAT Micros
	// Serial numbers the store's grants, rising: MaxWant times the ask's number, plus the slot's place in its ask.
	// Settle recognizes a grant by it, so that settling a grant twice (a retried round trip) gives nothing back twice.
	Serial int64
	// Before is the serial of the key's grant before this one, 0 if the store does not know it. It lets a key give its
	// latest grants back in reverse order.
	Before int64
	// Counts are what the store had counted of each of Rules.Shared by then, for Settle. They are nil if no answer says
	// what is left of a limit.
	Counts []Count
}

// MaxWant is the most slots one Ask may want.
const MaxWant = 64

// Wait says which limit made the store give fewer slots than wanted, and when to ask again.
type Wait struct {
	Limit string // the name of a shared limit, or "rate" for the key's own
	Until Micros
	// Never says that the cost can never pass.
	Never bool
	// Exhausted is set if Limit is a budget that is spent until Until. It is the configured treatment of the job.
	Exhausted Exhausted
	// Excess is set if the limit opens when the vendor's count begins anew, or when an answer says that enough is left.
	// It is how many units only the vendor counts (left.go).
	Excess int64
}

// Answer is the result of an Ask: the granted slots in order and, if they are fewer than wanted, why.
type Answer struct {
	Grants []Grant
	Wait   Wait
	// Now is the store's time when it answered. The store's clock may be another machine's. So wait for At-Now (or
	// Until-Now) on a monotonic clock, from the moment the answer arrives. Such a wait never ends early. It ends late
	// by less than the time that the answer was on its way.
	Now Micros
	// Elsewhere is how many keys of the ask's tenant wait at other replicas, as far as their Lines said lately.
	Elsewhere int
	// Whole is what all replicas have of the ask's priority, in thousandths of what the asking replica has: 1000 if no
	// other has any, and 0 if the ask has no Line.
	Whole int
	// Part is how much of the account's limits the ask's api gets, in thousandths, as long as the same apis wait as
	// now. It is 1000 if no other api waits, and 0 if the ask has no Line.
	Part int
}

// Use reports the end of a grant to the store. A grant may be Returned unused. The key gets it back if all later grants
// of the key were given back before, and a shared limit as far as no later grant relies on it. The rest is forfeited. Or
// a call used the grant and has ended: its shared in-flight permit becomes free, and its Actual costs replace the
// estimate if they are known.
type Use struct {
	Key      string
	Grant    Grant
	Costs    []int64 // as asked
	Returned bool
	Actual   []int64 // nil: as asked
	Left     []Left  // what the answer says is left of each limit, in the order of Costs; nil: nothing
	// Hold is set for an operation that goes on after its call. Settle then ends no grant: it takes a permit of every
	// limit of calls in flight for that long, whether there is one or not, or keeps the permit that the operation has.
	// Grant.Serial must be a negative number of the operation's own. A Use with this serial and no Hold ends the permit.
	Hold time.Duration
}

// Refusal is the error of a Store that answers, and grants no slot until something has happened.
type Refusal struct {
	Err error  // why
	Fix string // what to do
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() + ": " + r.Fix }

// Unwrap returns why the store refuses.
func (r *Refusal) Unwrap() error { return r.Err }

// Store reserves slots under the limits of one api: all of them or none, in one atomic step. Every error path
// under-admits. Implementations are safe for concurrent use and pass storetest.
type Store interface {
	// Reserve answers every ask, in order. If it returns an error, it has granted no slot.
	Reserve(ctx context.Context, asks []Ask) ([]Answer, error)
	// Settle ends grants.
	Settle(ctx context.Context, uses []Use) error
}
