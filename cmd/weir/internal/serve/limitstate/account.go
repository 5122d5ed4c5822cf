package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/cmd/weir/internal/serve/clock"
	"weir/dispatcher/ledger"
)

// Accounts of quotas and budgets.
//
// A checkpoint claims time in advance. So after a crash the checkpoint gives a start only an upper bound of what quotas
// and budgets have used. The account has the exact use: what the ledger's records charge each quota and budget, up to
// one sequence of the ledger. The account advances only by reading the ledger, and contains no claim.
//
// A start reads the ledger from that sequence on, in the background. When every partition is recovered, and every call
// that was under way at a death has its record, the account's sum replaces the bound. If the ledger does not reach back
// to that sequence, the account begins anew with the bound. The limits then count too much until their periods end, but
// the next death adds nothing to the excess. Until the bound is replaced, a limit that only the bound has used up is
// asked again soon, buries no job, sends no budget event and has no metric.

// accountNote is the stored form of an account.
type accountNote struct {
	Born    time.Time       `json:"born"`           // when the ledger was created
	Read    uint64          `json:"read"`           // the account counts the ledger's records up to this sequence
	Lost    int             `json:"lost,omitempty"` // losses of the ledger that the account takes into account
	Boot    string          `json:"boot,omitempty"` // id of the machine's boot; empty if no acknowledged write can be lost with the machine
	Account *bucket.Account `json:"account"`
}

// accounts keeps the account of one unit. Once opened, only run touches it.
type accounts struct {
	of        unit
	store     *bucket.Memory
	js        jetstream.JetStream
	control   jetstream.KeyValue
	instance  string
	start     bucket.Micros // when this process began, by the calendar: it plans no call earlier
	now       func() bucket.Micros
	ahead     func() bucket.Micros
	recovered func() (unlogged int, ok bool)
	price     func() (price int64, fixed bool) // price of every call; fixed is false if prices differ
	changed   func()                           // called when the limits have another count
	log       *slog.Logger
	lost      func() int
	damaged   func(ctx context.Context, d *ledger.Damage) error
	quiet     func() bool   // reports that no call runs or waits to be recorded
	settled   chan struct{} // closed when no bound is left
	wake      chan struct{} // a limit is new to the rules
	gaps      gaps          // what the ledger could not tell

	note    accountNote
	stored  uint64          // note.Read of the last account stored
	began   uint64          // the ledger's last sequence before this process made its first call
	former  *bucket.Account // the use by former processes, from the ledger; nil once it has replaced the bound
	shifted bucket.Micros   // how far the calendar was ahead of the clock when the account last advanced
	callers map[string]bool // every api known so far whose records may charge the limits
}

const (
	accountEvery = 10 * time.Second
	accountWait  = 5 * time.Second       // the longest that storing an account may take
	accountPoll  = 20 * time.Millisecond // how often awaitRecovery and awaitQuiet check
	accountRetry = time.Second
	mostUnread   = 2_000_000 // the most records that a start reads; if there are more, the bound stays
	mostIdle     = 100_000   // records of other apis after which an account without calls is stored again
)

func accountKey(api string) string { return "account." + api }

// openAccounts restores or begins the account of a unit. The unit's last checkpoint must already be restored, and no
// slot may have been granted. openAccounts blocks until an account is stored, so every claim of this process's
// checkpoints is later than the account.
//
// early is how far the former process's clock was ahead of this process's clock. If it is more than a second, the
// account's periods lie in the future, and the account begins anew.
func openAccounts(ctx context.Context, o *Options, u unit, store *bucket.Memory, early time.Duration) (*accounts, error) {
	a := &accounts{
		of: u, store: store, js: o.JetStream, control: o.Control, instance: o.Instance, now: o.Clock.Now, ahead: o.Clock.Ahead,
		recovered: func() (int, bool) { return u.now(store).recovered(o.Caller) }, price: func() (int64, bool) { return u.now(store).price(o.Caller) },
		quiet: func() bool { return u.isQuiet(store, o.Caller) }, changed: func() {}, lost: o.Ledger.lost, damaged: o.Ledger.damaged, settled: make(chan struct{}), wake: make(chan struct{}, 1),
		log: u.log(o), callers: map[string]bool{},
	}
	for _, api := range u.before {
		a.callers[api] = true
	}
	a.shifted = a.ahead()
	a.start = a.now() + a.shifted
	extent, err := ledger.ExtentOf(ctx, a.js)
	if err != nil {
		return nil, err
	}
	a.began = extent.Last
	boot := ""
	if o.Unsynced {
		boot = bootID()
	}
	why, err := a.recall(ctx, extent, boot, early)
	if err != nil {
		return nil, err
	}
	a.note.Boot = boot
	switch {
	case u.leavers() && len(store.Bounds()) > 0: // calls that they made meanwhile may be recorded later, or never
		return a, a.beginAnew(ctx, extent, "an api has left the account since")
	case why == "":
	case why == noAccount && extent.First <= 1 && extent.Last <= mostUnread && a.lost() == 0: // the ledger has every call
		a.note.Born, a.note.Read, a.note.Account = extent.Born, 0, bucket.NewAccount(store.Rules())
		if err := a.put(ctx, a.note); err != nil {
			return nil, err
		}
	default:
		return a, a.beginAnew(ctx, extent, why)
	}
	a.former = a.note.Account.Clone()
	if len(store.Bounds()) == 0 && len(store.Partial()) == 0 {
		close(a.settled) // the former process stopped in order
	}
	return a, nil
}

// noAccount is the reason if no account is stored.
const noAccount = "no account was kept"

// bootID returns the id of the machine's boot. Writes that were not synced before a later boot are lost. bootID returns
// "?" if the system has no such id.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(id))
}

// recall reads the stored account into a.note. why says why the account cannot be used; it is "" if the account can be
// used.
func (a *accounts) recall(ctx context.Context, extent ledger.Extent, boot string, early time.Duration) (why string, err error) {
	m, err := newestOf(ctx, a.js.Conn(), a.control, accountKey(a.of.name))
	if err != nil {
		return "", fmt.Errorf("account of the last run: %w", err)
	}
	if m.Seq == 0 {
		return noAccount, nil
	}
	if err := json.Unmarshal(m.Data, &a.note); err != nil || a.note.Account == nil {
		return "the account cannot be read", nil //nolint:nilerr // the bound holds without it
	}
	a.stored = a.note.Read
	switch {
	case early > clockNoise:
		return "its clock was ahead of this one", nil
	case !a.note.Born.Equal(extent.Born):
		return "the ledger was made anew", nil
	case a.note.Boot != boot || boot == "?":
		return "the machine was started again, and not everything was synced before", nil
	case a.note.Lost != a.lost():
		return "records of the ledger are gone", nil
	case extent.Last < a.note.Read:
		return "the ledger has lost its last records", nil
	case extent.First > a.note.Read+1:
		return "the ledger does not reach back to the last account", nil
	case extent.Last-a.note.Read > mostUnread:
		return "too many records have come since the last account", nil
	}
	a.note.Account.Follow(a.store.Account())
	return "", nil
}

// beginAnew stores as the account what the limits count now. That count includes every claim of the restored
// checkpoint, so it may be too high.
func (a *accounts) beginAnew(ctx context.Context, extent ledger.Extent, why string) error {
	if len(a.store.Bounds()) > 0 {
		a.log.Info("the ledger does not say what limits used before the start: it counts as used", "reason", why)
	}
	note := a.note
	note.Born, note.Read, note.Lost, note.Account = extent.Born, extent.Last, a.lost(), a.store.Account()
	if err := a.put(ctx, note); err != nil {
		return err
	}
	a.correct(nil)
	return nil
}

// put stores the account's note, and then makes it the present one. If it fails, the present note stays, so that
// advance begins with it again.
func (a *accounts) put(ctx context.Context, note accountNote) error {
	data, err := json.Marshal(note)
	if err != nil {
		panic("an account that JSON cannot carry: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, accountWait)
	defer cancel()
	if _, err := a.control.Put(ctx, accountKey(a.of.name), data); err != nil {
		return fmt.Errorf("account of the limits: %w", err)
	}
	a.note, a.stored = note, note.Read
	return nil
}

// run replaces the bounds by the use of former processes as soon as it is known. Then it keeps the account up to date
// until ctx ends.
func (a *accounts) run(ctx context.Context) {
	if !a.awaitRecovery(ctx) {
		return
	}
	told := ""
	for wait := time.Duration(0); ; {
		select {
		case <-time.After(wait):
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		err := a.advance(ctx)
		if err == nil {
			err = a.fillIn(ctx)
		}
		switch wait = accountEvery; {
		case err == nil:
			told = ""
			continue
		case ctx.Err() != nil:
			return
		case err.Error() != told:
			told = err.Error()
			a.log.Warn("could not add up the use of limits from the ledger; trying again", "err", err)
		}
		wait = accountRetry
	}
}

// awaitRecovery blocks until every call of former processes has its record. It returns false if ctx ended first.
func (a *accounts) awaitRecovery(ctx context.Context) bool {
	tick := time.NewTicker(accountPoll)
	defer tick.Stop()
	for {
		if _, ok := a.recovered(); ok {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// draft is an account that is being advanced to the ledger's end.
type draft struct {
	note   accountNote
	former *bucket.Account // as in accounts
	rules  bucket.Rules
	calls  int // calls counted so far

	shifted bucket.Micros // as in accounts, for note
}

// advance counts the ledger's new records. The first time it also replaces the bounds by the use of former processes.
//
// It reads the ledger's end before it reads the limits. So a limit that is new to the account came into force after
// that end, and no record up to it charges the limit.
func (a *accounts) advance(ctx context.Context) error {
	extent, err := ledger.ExtentOf(ctx, a.js)
	if err != nil {
		return err
	}
	return a.advanceTo(ctx, extent)
}

func (a *accounts) advanceTo(ctx context.Context, extent ledger.Extent) error {
	if a.note.Lost != a.lost() || extent.Last < a.note.Read || extent.First > a.note.Read+1 || !extent.Born.Equal(a.note.Born) {
		return a.beginAnew(ctx, extent, "the ledger has lost records")
	}
	d := a.draft()
	if d.nothingCounts() { // fillIn adds up a limit that is added later
		d.note.Read = extent.Last
		return a.adopt(ctx, d)
	}
	for _, api := range a.of.callers(a.store) {
		a.callers[api] = true
	}
	charges := ledger.Charges{APIs: slices.Sorted(maps.Keys(a.callers)), After: d.note.Read, Last: extent.Last}
	if charges.Whole = d.former != nil; charges.Whole && a.of.pool { // every record from before the start is needed
		charges.APIs = nil // this process may not know an api that had the account then
	}
	err := ledger.ReadCharges(ctx, a.js, charges, func(c *ledger.Record, seq uint64) {
		d.calls++
		d.count(d.note.Account, c)
		if d.former != nil && a.isFormer(c, seq) {
			d.count(d.former, c)
		}
	})
	if damage := (*ledger.Damage)(nil); errors.As(err, &damage) {
		if err := a.damaged(ctx, damage); err != nil {
			return err
		}
		return a.beginAnew(ctx, extent, err.Error())
	}
	if err != nil {
		return err
	}
	d.note.Read = extent.Last
	return a.adopt(ctx, d)
}

// draft returns a copy of the account, adapted to the limits that are in force now. If the account's count of a limit
// is of no use for these limits, the copy takes the count from the store.
func (a *accounts) draft() *draft {
	d := &draft{note: a.note, rules: a.store.Rules(), shifted: a.shifted}
	d.note.Account = a.note.Account.Clone()
	present := a.store.Account()
	unsure := d.note.Account.Follow(present)
	switch ahead := a.ahead(); {
	case ahead > a.shifted+clock.Step: // the calendar moved ahead: sliding quotas hold times of the earlier calendar
		d.shifted = ahead
		unsure = append(unsure, d.note.Account.Slide(present)...)
	case ahead < a.shifted-clock.Step: // the calendar moved back: the periods of all quotas are of the earlier calendar
		d.shifted = ahead
		d.note.Account = present
		for i := range present.Limits {
			unsure = append(unsure, present.Limits[i].Name)
		}
	}
	if a.former != nil {
		d.former = a.former.Clone()
		d.former.Limits = slices.DeleteFunc(d.former.Limits, func(l bucket.LimitAccount) bool { return slices.Contains(unsure, l.Name) })
	}
	return d
}

// nothingCounts reports that no limit needs an account.
func (d *draft) nothingCounts() bool {
	return len(d.note.Account.Limits) == 0 && (d.former == nil || len(d.former.Limits) == 0)
}

// count adds a call to every limit that its record charges.
func (d *draft) count(account *bucket.Account, c *ledger.Record) {
	for i := range d.rules.Shared {
		l := &d.rules.Shared[i]
		if units, in := c.Took(l); in {
			account.Add(d.rules, l.Name, ChargedAt(c), units)
		}
	}
}

// slotAfter is the longest time from the storing of a call's intent to the call's start. A slot that is later is given
// back.
const slotAfter = 5 * time.Second

// ChargedAt returns the time, by the calendar, at which a call counts: its slot. If a former process died before it
// recorded the call, the slot is unknown. If the call is known to have been made, it counts at Started. Otherwise
// Started is the earliest possible start, and the call counts slotAfter later, so at the edge of a period it counts in
// the next period.
func ChargedAt(c *ledger.Record) bucket.Micros {
	switch {
	case !c.Planned.IsZero():
		return bucket.MicrosOf(c.Planned)
	case c.Outcome == ledger.Done:
		return bucket.MicrosOf(c.Started)
	}
	return bucket.MicrosOf(c.Started.Add(slotAfter))
}

// isFormer reports whether another process made the call of a record. This process's limits granted no slot for such a
// call.
func (a *accounts) isFormer(c *ledger.Record, seq uint64) bool {
	return seq <= a.began || c.Planned.IsZero() || bucket.MicrosOf(c.Planned) < a.start || c.Instance != a.instance
}

// adopt stores the advanced account. The first time, it then replaces the bounds. The account must be stored first: the
// limits may count less than the restored bound only when a restart would begin with the account.
func (a *accounts) adopt(ctx context.Context, d *draft) error {
	now := a.now() + a.ahead()
	d.note.Account.Forget(d.rules, now)
	if d.former != nil {
		d.former.Forget(d.rules, now)
		a.addUnlogged(d, now)
	}
	if a.former == nil && d.calls == 0 && d.note.Read-a.stored < mostIdle {
		a.note, a.shifted = d.note, d.shifted
		return nil
	}
	if err := a.put(ctx, d.note); err != nil {
		return err
	}
	a.former, a.shifted = d.former, d.shifted
	if d.former != nil {
		a.correct(d.former)
	}
	return nil
}

// addUnlogged counts the calls that may have been under way at a death and have no record. It counts the most units
// that these calls can have taken, but never more than the bound.
func (a *accounts) addUnlogged(d *draft, now bucket.Micros) {
	calls, _ := a.recovered()
	if calls == 0 {
		return
	}
	for name, bound := range a.store.Bounds() {
		of := d.former.Of(name)
		if of == nil {
			continue
		}
		units := max(0, bound-of.UsedAt(now))
		for i := range d.rules.Shared {
			if l := &d.rules.Shared[i]; l.Name == name && l.Budget != nil {
				if price, fixed := a.price(); fixed {
					units = min(units, int64(calls)*price)
				}
			} else if l.Name == name && l.Cost == nil {
				units = min(units, int64(calls))
			}
		}
		d.former.Add(d.rules, name, now, units)
		d.note.Account.Add(d.rules, name, now, units)
	}
}

// correct replaces the bounds by the use of former processes. If former is nil, the bounds stay for good.
func (a *accounts) correct(former *bucket.Account) {
	a.former = nil
	a.store.Correct(former)
	if len(a.store.Partial()) == 0 {
		a.settle()
	}
	a.changed()
}

// settle makes AwaitExact return.
func (a *accounts) settle() {
	select {
	case <-a.settled:
	default:
		close(a.settled)
	}
}
