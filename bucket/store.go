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
	// Costs are the units that each call takes from the limits of Rules.Shared, in the order of that slice. Nil means
	// one unit of each.
	Costs []int64
	Want  int // slots wanted, 1 to 64
	// Horizon bounds how far ahead of now a slot may lie. The store does not reserve a later slot; Wait.Until then says
	// when to ask again. If one limit delays a slot, the other limits are charged at that later time and stay idle
	// until then, also for other keys. So under shared limits, make Horizon no longer than a round trip to the store.
	// With a Horizon of 0, a caller that asks again at Wait.Until loses nothing.
	Horizon time.Duration
	// Floor is a lower bound of this key's TAT that the caller knows, 0 if none. With it the store continues a key that
	// it has forgotten.
	Floor Micros

	// Line says which keys wait at the replica that asks. All asks of a round have the same Line. It is nil if no other
	// process uses the Store, or if the ask is made out of turn.
	Line     *Line
	Tenant   string   // the tenant of Key, as in Line.Tenants
	Priority Priority // of the job
	Service  Micros   // microseconds for which the call uses up the limit that it burdens most; at least 1
}

// Validate returns an error if the ask is malformed under rules. A Store refuses such an ask.
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

// maxCost is the largest cost of one call. Lua represents it exactly, and a sum of hundreds of costs does not overflow.
const maxCost = 1 << 52

// Grant is the right to start one call at At, and not later than At plus the api's jitter.
type Grant struct {
	At Micros
	// TAT is the key's theoretical arrival time after this grant. The ledger keeps it so that a restart continues from
	// it.
	TAT Micros
	// Serial numbers the store's grants in rising order. It is MaxWant times the ask's number, plus the slot's place in
	// its ask. Settle identifies a grant by its serial, so a retried Settle gives nothing back twice.
	Serial int64
	// Before is the serial of the key's previous grant, 0 if the store does not know it. With it a key can give its
	// latest grants back in reverse order.
	Before int64
	// Counts say how much the store had counted of each limit of Rules.Shared, this grant included. Settle compares
	// them with what the answer says is left. They are nil if no answer says what is left of a limit.
	Counts []Count
}

// MaxWant is the most slots one Ask may want.
const MaxWant = 64

// Wait says which limit made the store give fewer slots than wanted, and when to ask again.
type Wait struct {
	Limit string // the name of a shared limit, or "rate" for the key's own
	Until Micros
	// Never says that the cost exceeds what the limit can ever let pass.
	Never bool
	// Exhausted is set if Limit is a budget with too little left until Until. It says what the configuration does with
	// the job.
	Exhausted Exhausted
	// Excess is set if only the vendor counts part of the units that keep the call waiting (left.go): it is the number
	// of those units. The limit opens when the vendor's count begins anew, or when an answer says that enough is left.
	Excess int64
}

// Answer is the result of an Ask: the granted slots in order and, if they are fewer than wanted, why.
type Answer struct {
	Grants []Grant
	Wait   Wait
	// Now is the store's time when it answered. The store's clock may be another machine's. So wait for At-Now (or
	// Until-Now) on a monotonic clock, from the moment the answer arrives. Such a wait never ends early, and ends late
	// by less than the time that the answer was on its way.
	Now Micros
	// Elsewhere is how many keys of the ask's tenant wait at other replicas with jobs of the ask's priority, by the
	// latest Line of each replica.
	Elsewhere int
	// Whole is the number of tenants that wait with the ask's priority at all replicas, divided by the asking replica's
	// share of them, in thousandths. It is 1000 if none waits elsewhere, and 0 if the ask has no Line.
	Whole int
	// Part is the share of the account's limits that the ask's api gets while the same apis wait as now, in
	// thousandths. It is 1000 if no other api waits, and 0 if the ask has no Line.
	Part int
}

// Use reports the end of a grant to the store.
//
// A grant may be Returned unused. The key then gets its unit back if all later grants of the key were given back
// before. A shared limit gets back the units that no later grant relies on. The rest is forfeited.
//
// Otherwise a call used the grant and has ended. Its shared in-flight permit becomes free. Its Actual costs, if they
// are known, replace the estimate.
type Use struct {
	Key      string
	Grant    Grant
	Costs    []int64 // the Costs of the Ask
	Returned bool
	Actual   []int64 // the call's real costs; nil: the same as Costs
	Left     []Left  // what the answer says is left of each limit, in the order of Costs; nil: it says nothing
	// Hold is set for an operation that goes on after its call. Settle then ends no grant. It takes a permit of every
	// limit of calls in flight for as long as Hold, even if none is free. If the operation already has a permit, Settle
	// only sets its new end. Grant.Serial must be a negative number that the operation has chosen. A Use with this
	// serial and no Hold ends the permit.
	Hold time.Duration
}

// Refusal is the error of a Store that can be reached but grants no slot until its cause is removed.
type Refusal struct {
	Err error  // why
	Fix string // what to do
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() + ": " + r.Fix }

// Unwrap returns why the store refuses.
func (r *Refusal) Unwrap() error { return r.Err }

// Store reserves slots under the limits of one api: all of them or none, in one atomic step. Every error path grants
// less, never more. Implementations are safe for concurrent use and pass storetest.
type Store interface {
	// Reserve answers every ask, in order. If it returns an error, it has granted no slot.
	Reserve(ctx context.Context, asks []Ask) ([]Answer, error)
	// Settle ends grants.
	Settle(ctx context.Context, uses []Use) error
}
