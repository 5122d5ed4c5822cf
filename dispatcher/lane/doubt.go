package lane

import (
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// Doubt says what is known of those calls of a job that the api may have processed.
type Doubt struct {
	Billed   deadletter.Billed // what is known of the charges of its calls so far
	Identity string            // of the first such call's key; "" if there is no such call, or its key is unknown
	never    bool              // no further call may follow: a call carried no key, or calls carried different ones
}

// Add adds a call that has ended.
func (d *Doubt) Add(billed deadletter.Billed, identity string) {
	d.Recall(billed, identity)
	d.never = d.never || billed != deadletter.NotBilled && identity == ""
}

// Recall adds what is known of earlier calls. If identity is "", the key of these calls is unknown.
func (d *Doubt) Recall(billed deadletter.Billed, identity string) {
	first := d.Charged() == deadletter.NotBilled
	if d.Billed = d.Billed.Worst(billed); billed.Worst(deadletter.NotBilled) == deadletter.NotBilled {
		return
	}
	if !first && d.Identity == "" {
		identity = deadletter.UntimedKey(identity) // it is unknown when the first call began
	}
	d.never = d.never || d.Identity != "" && identity != "" && !deadletter.SameKey(d.Identity, identity)
	d.Identity = deadletter.EarlierKey(d.Identity, identity)
}

// Charged returns whether a call may have been processed, and whether it was charged.
func (d *Doubt) Charged() deadletter.Billed { return d.Billed.Worst(deadletter.NotBilled) }

// Keyed returns the identity that another call of the job must have. It is "" if no call may follow, or if any identity
// will do.
func (d *Doubt) Keyed() string {
	if d.never {
		return ""
	}
	return d.Identity
}

// Allows reports whether the job's earlier calls permit another one at now, by the wall clock. api has the present
// terms. pack is the id of the pack in which the job would be called, "" if it would be called alone. If it is unknown
// when an earlier call was made and the api forgets keys, the api counts as having forgotten that call's key.
func (d *Doubt) Allows(api *httpcall.API, pack string, now time.Time) bool {
	switch {
	case d.Charged() == deadletter.NotBilled:
		return true
	case d.never || api.Idempotency == nil, d.Identity == "" && api.Pack != nil: // a pack's key is not the job's
		return false
	case d.Identity != "" && !deadletter.SameKey(d.Identity, api.KeyIdentityIn(pack)):
		return false
	}
	return !deadletter.KeyForgotten(d.Identity, api.KnowsKeys(), now.Add(deadletter.KeyMargin))
}

// WhyNot says why the api may treat another call of a job in doubt as a new one. whole says that all jobs of the pack
// are still there.
func (d *Doubt) WhyNot(api *httpcall.API, pack string, whole bool) string {
	switch {
	case pack != "" && !whole:
		return "its call was for a pack of jobs, of which others have ended"
	case d.Identity == "" && api.Pack != nil:
		return "under which key it was made is unknown"
	case !d.never && api.Idempotency != nil && (d.Identity == "" || deadletter.SameKey(d.Identity, api.KeyIdentityIn(pack))):
		return "the api may have forgotten the idempotency key of the first call"
	}
	return "how calls carry their idempotency keys has changed since"
}

const doubtDetail = "an earlier call may have been processed, and the api would take another one for a new one: "
