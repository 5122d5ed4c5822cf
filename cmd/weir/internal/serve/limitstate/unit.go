package limitstate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
)

// unit is what has a checkpoint and an account of its own: the limits of one api, or those of an account that apis
// share.
type unit struct {
	name  string   // in keys of Control: an api's name, or that of an account with accountPrefix
	apis  []string // whose calls the limits count
	rules bucket.Rules
	pool  bool // it is an account
}

// unitOf returns the unit of the limits that an api has alone.
func unitOf(api *httpcall.API) unit {
	return unit{name: api.Name, apis: []string{api.Name}, rules: api.Rules}
}

// accountPrefix begins the name of an account's unit. No api's name has a dot.
const accountPrefix = "account."

// poolOf returns the unit of the account of rules.
func poolOf(rules bucket.Rules) unit {
	return unit{name: accountPrefix + rules.In.Account, apis: rules.In.APIs, rules: rules.Pool(), pool: true}
}

// now returns the unit with the apis that its account has now.
func (u unit) now(store *bucket.Memory) *unit {
	rules := store.Rules()
	u.apis = rules.APIs(u.name)
	if !u.pool {
		u.apis = []string{u.name}
	}
	return &u
}

// log returns the log for messages about the unit.
func (u *unit) log(o *Options) *slog.Logger {
	if u.pool {
		return o.Log.With("component", "limits", "account", u.rules.In.Account)
	}
	return o.Log.With("component", "limits", "api", u.name)
}

// api returns which records of the ledger are read: those of the only api, or all.
func (u *unit) api() string {
	if u.pool {
		return ""
	}
	return u.name
}

// calls returns the subjects of the unit's records.
func (u *unit) calls() string {
	if u.pool {
		return ledger.CallSubjects.Below()
	}
	return ledger.CallsOf(u.name)
}

// called reports whether the ledger has any call of an api of the unit.
func (u *unit) called(ctx context.Context, js jetstream.JetStream) (bool, error) {
	for _, api := range u.apis {
		if called, err := hasCalls(ctx, js, api); called || err != nil {
			return called, err
		}
	}
	return false, nil
}

// hasCalls reports whether the ledger has any call of an api.
func hasCalls(ctx context.Context, js jetstream.JetStream, api string) (bool, error) {
	last, err := stream.LastOf(ctx, js.Conn(), ledger.CallsStream, ledger.CallsOf(api))
	if err != nil {
		return false, fmt.Errorf("ledger: %w", err)
	}
	return last > 0, nil
}

// recovered reports whether the calls of former processes have records, except unlogged.
func (u *unit) recovered(c Caller) (unlogged int, ok bool) {
	for _, api := range u.apis {
		n, ok := c.Recovered(api)
		if !ok {
			return 0, false
		}
		unlogged += n
	}
	return unlogged, true
}

// isQuiet reports whether no call that the unit's limits must count runs here or waits to be recorded. The last calls of
// an api that has left the account may have been made in it. While an api has not come to the account yet, it may be
// called without the account's limits.
func (u *unit) isQuiet(store *bucket.Memory, c Caller) bool {
	if store.Awaits() {
		return false
	}
	rules := store.Rules()
	left := store.LeftWithin(time.Duration(rules.LeaseMicros())*time.Microsecond + recordWait)
	for _, api := range slices.Concat(u.now(store).apis, left) {
		if !c.Quiet(api) {
			return false
		}
	}
	return true
}

// price returns what every call costs, if all cost the same.
func (u *unit) price(c Caller) (price int64, fixed bool) {
	for i, api := range u.apis {
		p, fixed := c.FixedPrice(api)
		if !fixed || i > 0 && p != price {
			return 0, false
		}
		price = p
	}
	return price, len(u.apis) > 0
}

// ForgetAccounts makes accounts that are not configured count as unknown: while they are not, what their apis are called
// for does not count in them. It must come before any call of this process.
func ForgetAccounts(ctx context.Context, o *Options, configured func(account string) bool) error {
	prefix := "$KV." + o.Control.Bucket() + "."
	kept, err := o.JetStream.Stream(ctx, "KV_"+o.Control.Bucket())
	if err != nil {
		return fmt.Errorf("limits of accounts: %w", err)
	}
	info, err := kept.Info(ctx, jetstream.WithSubjectFilter(prefix+checkpointKey(accountPrefix)+"*"))
	if err != nil {
		return fmt.Errorf("limits of accounts: %w", err)
	}
	for subject := range info.State.Subjects {
		key := strings.TrimPrefix(subject, prefix)
		if configured(strings.TrimPrefix(key, checkpointKey(accountPrefix))) {
			continue
		}
		if _, err := o.Control.PutString(ctx, key, forgotten); err != nil {
			return fmt.Errorf("limits of accounts that are not configured: %w", err)
		}
	}
	return nil
}

// OpenAccount opens the limits of the account that rules name, if this process counts them; nil if Redis does. It must
// come before the first Open of an api of the account.
func OpenAccount(ctx context.Context, o *Options, rules bucket.Rules) (*Limits, error) {
	if o.Redis != nil {
		return nil, nil //nolint:nilnil // each api counts the account's limits with its own, in one state
	}
	l, _, err := openUnit(ctx, o, poolOf(rules), nil)
	return l, err
}
