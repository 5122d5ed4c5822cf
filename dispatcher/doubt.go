package dispatcher

import (
	"cmp"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// doubt describes those calls of a job that the api may have processed.
type doubt struct {
	billed   deadletter.Billed // what is known of the charges of its calls so far
	identity string            // of the keys that they carried; "" if no call is in doubt, or it is unknown
	never    bool              // a call carried no key, or calls carried different ones, so that no call may follow
}

// add adds a call that has ended.
func (d *doubt) add(billed deadletter.Billed, identity string) {
	d.recall(billed, identity)
	d.never = d.never || billed != deadletter.NotBilled && identity == ""
}

// recall adds what is known of earlier calls. If identity is "", the key that they were made under is unknown.
func (d *doubt) recall(billed deadletter.Billed, identity string) {
	if d.billed = d.billed.Worst(billed); billed.Worst(deadletter.NotBilled) == deadletter.NotBilled {
		return
	}
	d.never = d.never || d.identity != "" && identity != "" && d.identity != identity
	d.identity = cmp.Or(d.identity, identity)
}

// known returns whether a call may have been processed, and whether it was charged.
func (d *doubt) known() deadletter.Billed { return d.billed.Worst(deadletter.NotBilled) }

// keyed returns the identity under which another call of the job may follow. It is "" if no call may follow, or any
// identity will do.
func (d *doubt) keyed() string {
	if d.never {
		return ""
	}
	return d.identity
}

// allows reports whether the job's earlier calls permit another one by an api's present terms.
func (d *doubt) allows(api *httpcall.API) bool {
	if d.known() == deadletter.NotBilled {
		return true
	}
	return !d.never && api.Idempotency != nil && (d.identity == "" || d.identity == api.KeyIdentity())
}

const doubtDetail = "an earlier call may have been processed, and the api would take another one for a new one: how calls carry their idempotency keys has changed since"
