package httpcall

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"weir/deadletter"
)

// An api takes two calls of a job for one only if both carry the same idempotency key to the same place. The
// configuration at the time when a call began decides that, not the present configuration. So intents, retry marks, the
// ledger's records and letters store the key's identity. One rule uses the identity: if a call of a job may have been
// processed, the job is called again under the same identity while the api knows the key, or not at all.

// CallIdentity returns the identity of a call that begins at a time. It consists of KeyIdentity and that time.
func (a *API) CallIdentity(begins time.Time) string {
	if a.Idempotency == nil {
		return ""
	}
	return deadletter.KeyedSince(a.KeyIdentity(), begins)
}

// PackIdentity returns the identity of a pack's call that begins at a time. It consists of KeyIdentityIn and that time.
func (a *API) PackIdentity(pack string, begins time.Time) string {
	if a.Idempotency == nil {
		return ""
	}
	return deadletter.KeyedSince(a.KeyIdentityIn(pack), begins)
}

// KeyIdentityIn returns the identity of the key with which a job is called in a pack: KeyIdentity and the pack's
// idempotency key. If pack is "", the job is called by itself, and the identity is KeyIdentity. A job whose pack may
// have been processed is called again only under the same identity, and so only in the same pack.
func (a *API) KeyIdentityIn(pack string) string {
	identity := a.KeyIdentity()
	if pack == "" || identity == "" {
		return identity
	}
	return identity + "+" + pack
}

// KnowsKeys returns how long the api knows an idempotency key, 0 for always.
func (a *API) KnowsKeys() time.Duration {
	if a.Idempotency == nil {
		return 0
	}
	return a.Idempotency.For
}

// KeyIdentity identifies how an api's calls carry their idempotency keys, and to which place; "" if they carry none.
// The api takes all calls of one job under one identity for one call. Another header, form, place or default method
// makes another identity. The headers with credentials are not part of it, because a rotated secret mostly means the
// same account. The parts of the identity must not change: after an upgrade that changed them, weir would repeat no job
// in doubt.
func (a *API) KeyIdentity() string {
	if a.Idempotency == nil {
		return ""
	}
	place := ""
	if a.URL != nil {
		place = a.URL.Scheme + "://" + a.URL.Host + a.URL.EscapedPath()
	}
	if a.Rule != nil && len(a.Rule.Methods) > 0 {
		place = a.Rule.Methods[0] + " " + place
	}
	if a.Pack != nil {
		place += fmt.Sprintf(" pack %+v", a.Pack.Request) // the form of the body that the key stands for
	}
	sum := sha256.Sum256([]byte(place))
	name := a.Idempotency.Header
	if a.Idempotency.Quoted {
		name = strconv.Quote(name)
	}
	return name + "@" + hex.EncodeToString(sum[:8])
}
