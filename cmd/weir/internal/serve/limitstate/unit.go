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

// unit is a set of limits with one checkpoint and one account: the limits of one api, or the limits of an account that
// several apis share.
type unit struct {
	name  string   // in keys of Control: the api's name, or accountPrefix and the account's name
	apis  []string // apis whose calls the limits count
	rules bucket.Rules
	pool  bool // the limits are those of an account
	// before are the apis that the account's last checkpoint names.
	before []string
}

// unitOf returns the unit of an api's own limits.
func unitOf(api *httpcall.API) unit {
	return unit{name: api.Name, apis: []string{api.Name}, rules: api.Rules}
}

// accountPrefix begins the name of an account's unit. No api's name has a dot.
const accountPrefix = "account."

// poolOf returns the unit of the account that rules name.
func poolOf(rules bucket.Rules) unit {
	return unit{name: accountPrefix + rules.In.Account, apis: rules.In.APIs, rules: rules.Pool(), pool: true}
}

// now returns a copy of the unit whose apis are those of the store's present rules.
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

// leavers reports whether an api that the last checkpoint names left the account while weir was stopped.
func (u *unit) leavers() bool {
	return slices.ContainsFunc(u.before, func(api string) bool { return !slices.Contains(u.apis, api) })
}

// api returns the api by which the ledger's records are filtered. For an account it returns "", which stands for all
// apis.
func (u *unit) api() string {
	if u.pool {
		return ""
	}
	return u.name
}

// calls returns the subject filter of the ledger's records that may charge the unit's limits.
func (u *unit) calls() string {
	if u.pool {
		return ledger.CallSubjects.Below()
	}
	return ledger.CallsOf(u.name)
}

// hasCalls reports whether the ledger has any call of an api of the unit.
func (u *unit) hasCalls(ctx context.Context, js jetstream.JetStream) (bool, error) {
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

// recovered reports whether all calls of former processes have records, except for the unlogged calls.
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

// callers returns the apis whose calls the unit's limits may have counted lately. Calls of an api that has left the
// account, or that is not configured any more, may still run or wait to be recorded.
func (u *unit) callers(store *bucket.Memory) []string {
	rules := store.Rules()
	lately := time.Duration(rules.LeaseMicros())*time.Microsecond + recordWait
	return slices.Concat(u.now(store).apis, store.Callers(lately))
}

// isQuiet reports whether no call that the unit's limits must count runs in this process or waits to be recorded. It
// returns false while an api of the account has not begun to ask the account, because calls of that api may still start
// without the account's limits.
func (u *unit) isQuiet(store *bucket.Memory, c Caller) bool {
	if store.Awaits() {
		return false
	}
	for _, api := range u.callers(store) {
		if !c.Quiet(api) {
			return false
		}
	}
	return true
}

// price returns the price of every call, in millionths of the currency. fixed is false if calls have different prices.
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

// ForgetAccounts marks the use of every account that is no longer configured as unknown, because calls of its former
// apis no longer count in it. ForgetAccounts must run before this process makes any call.
func ForgetAccounts(ctx context.Context, o *Options, configured func(account string) bool) error {
	prefix := "$KV." + o.Control.Bucket() + "."
	kept, err := o.JetStream.Stream(ctx, "KV_"+o.Control.Bucket())
	if err != nil {
		return fmt.Errorf("read the stored limits shared by several apis: %w", err)
	}
	info, err := kept.Info(ctx, jetstream.WithSubjectFilter(prefix+checkpointKey(accountPrefix)+"*"))
	if err != nil {
		return fmt.Errorf("read the stored limits shared by several apis: %w", err)
	}
	for subject := range info.State.Subjects {
		key := strings.TrimPrefix(subject, prefix)
		if configured(strings.TrimPrefix(key, checkpointKey(accountPrefix))) {
			continue
		}
		if _, err := o.Control.PutString(ctx, key, forgotten); err != nil {
			return fmt.Errorf("forget the use of a shared limit that is no longer configured: %w", err)
		}
	}
	return nil
}

// OpenAccount opens the limits of the account that rules name. It returns nil if Redis counts them. OpenAccount must
// run before the first Open of an api of that account.
func OpenAccount(ctx context.Context, o *Options, rules bucket.Rules) (*Limits, error) {
	if o.Redis != nil {
		return nil, nil //nolint:nilnil // each api counts the account's limits with its own, in one state
	}
	l, _, err := openUnit(ctx, o, poolOf(rules), nil)
	return l, err
}
