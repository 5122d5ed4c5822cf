package dispatcher

import (
	"cmp"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// doubt is what is known of those calls of a job that may have been processed.
type doubt struct {
	billed   deadletter.Billed // what is known of the charges of its calls so far
	identity string            // of the keys that they carried; "" where no call is in doubt, or nobody knows
	never    bool              // one carried no key, or they carried different ones: no call may follow
}

// add takes in a call that has ended.
func (d *doubt) add(billed deadletter.Billed, identity string) {
	d.recall(billed, identity)
	d.never = d.never || billed != deadletter.NotBilled && identity == ""
}

// recall takes in what is known of earlier calls. With identity "" nobody knows under which key they were made.
func (d *doubt) recall(billed deadletter.Billed, identity string) {
	if d.billed = d.billed.Worst(billed); billed.Worst(deadletter.NotBilled) == deadletter.NotBilled {
		return
	}
	d.never = d.never || d.identity != "" && identity != "" && d.identity != identity
	d.identity = cmp.Or(d.identity, identity)
}

// known is whether a call may have been processed, and what of it was charged.
func (d *doubt) known() deadletter.Billed { return d.billed.Worst(deadletter.NotBilled) }

// keyed is the identity under which a call of the job may follow, "" where none may or need not.
func (d *doubt) keyed() string {
	if d.never {
		return ""
	}
	return d.identity
}

// allows reports whether the job may be called by an api's present terms, as far as its earlier calls go.
func (d *doubt) allows(api *httpcall.API) bool {
	if d.known() == deadletter.NotBilled {
		return true
	}
	return !d.never && api.Idempotency != nil && (d.identity == "" || d.identity == api.KeyIdentity())
}

const doubtDetail = "an earlier call may have been processed, and the api would take another one for a new one: how calls carry their idempotency keys has changed since"
