package lane

import (
	"cmp"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// Doubt describes those calls of a job that the api may have processed.
type Doubt struct {
	Billed   deadletter.Billed // what is known of the charges of its calls so far
	Identity string            // of the keys that they carried; "" if no call is in doubt, or it is unknown
	never    bool              // a call carried no key, or calls carried different ones, so that no call may follow
}

// Add adds a call that has ended.
func (d *Doubt) Add(billed deadletter.Billed, identity string) {
	d.Recall(billed, identity)
	d.never = d.never || billed != deadletter.NotBilled && identity == ""
}

// Recall adds what is known of earlier calls. If identity is "", the key that they were made under is unknown.
func (d *Doubt) Recall(billed deadletter.Billed, identity string) {
	if d.Billed = d.Billed.Worst(billed); billed.Worst(deadletter.NotBilled) == deadletter.NotBilled {
		return
	}
	d.never = d.never || d.Identity != "" && identity != "" && d.Identity != identity
	d.Identity = cmp.Or(d.Identity, identity)
}

// Known returns whether a call may have been processed, and whether it was charged.
func (d *Doubt) Known() deadletter.Billed { return d.Billed.Worst(deadletter.NotBilled) }

// Keyed returns the identity under which another call of the job may follow. It is "" if no call may follow, or any
// identity will do.
func (d *Doubt) Keyed() string {
	if d.never {
		return ""
	}
	return d.Identity
}

// Allows reports whether the job's earlier calls permit another one by an api's present terms.
func (d *Doubt) Allows(api *httpcall.API) bool {
	if d.Known() == deadletter.NotBilled {
		return true
	}
	return !d.never && api.Idempotency != nil && (d.Identity == "" || d.Identity == api.KeyIdentity())
}

const doubtDetail = "an earlier call may have been processed, and the api would take another one for a new one: how calls carry their idempotency keys has changed since"
