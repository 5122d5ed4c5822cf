package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/serve/clock"
	"weir/dispatcher/ledger"
)

// Accounts of quotas and budgets.
//
// A checkpoint claims ahead, so that a start restores an upper bound. Beside it an account is kept: what the ledger
// says of each quota and budget up to one of its sequences. It is advanced by reading the ledger, never by what the
// process believes it has stored, and it contains no claim. A start reads the ledger from there on in the background.
// Once every partition has been recovered, and every call that was under way at a death has its record, the sum
// replaces the bound. If the ledger does not reach back far enough, the account begins anew with the bound: that is its
// cost, and the next death adds nothing to it. Until the bound has been replaced, a limit that only the bound has used
// up is asked again soon, no job is buried and no budget event sent because of it, and its metric is absent.

// accountNote is the stored form of an account.
type accountNote struct {
	Born    time.Time       `json:"born"`           // the ledger
	Read    uint64          `json:"read"`           // the account holds its records up to this sequence
	Lost    int             `json:"lost,omitempty"` // losses of the ledger that it covers
	Boot    string          `json:"boot,omitempty"` // of the machine whose memory held the embedded server's writes
	Account *bucket.Account `json:"account"`
}

// accounts keeps the account of one unit. Once opened, only run touches it.
type accounts struct {
	of        unit
	store     *bucket.Memory
	js        jetstream.JetStream
	control   jetstream.KeyValue
	instance  string
	start     bucket.Micros // by the calendar: this process has planned nothing earlier
	now       func() bucket.Micros
	ahead     func() bucket.Micros
	recovered func() (unlogged int, ok bool)
	price     func() (price int64, fixed bool) // of every call, if all cost the same
	changed   func()                           // reports that the limits count something else now
	log       *slog.Logger
	lost      func() int
	damaged   func(ctx context.Context, d *ledger.Damage) error
	quiet     func() bool   // reports that no call runs or waits to be recorded
	settled   chan struct{} // closed when no bound is left
	wake      chan struct{} // a limit is new to the rules
	gaps      gaps          // in what was added up

	note    accountNote
	stored  uint64          // note.Read of the last account stored
	began   uint64          // the ledger's last sequence before this process called anything
	former  *bucket.Account // what the ledger says of former processes' calls; nil once in force
	shifted bucket.Micros   // by how much the calendar was ahead when the account was last advanced
}

const (
	accountEvery = 10 * time.Second
	accountWait  = 5 * time.Second       // the longest that storing an account may take
	accountPoll  = 20 * time.Millisecond // how often it is checked whether all partitions are recovered
	accountRetry = time.Second
	mostUnread   = 2_000_000 // records that a start reads: with more the bound stays
	mostIdle     = 100_000   // records of other apis after which an account without calls is stored again
)

func accountKey(api string) string { return "account." + api }

// openAccounts finds what the ledger says of an api's limits, whose last checkpoint is restored. Nothing may have been
// granted yet. It blocks until an account is stored: the first checkpoint's claims come after it.
//
// early is by how much the former run's clock was ahead of this one's: then the account's periods lie ahead too.
func openAccounts(ctx context.Context, o *Options, u unit, store *bucket.Memory, early time.Duration) (*accounts, error) {
	a := &accounts{
		of: u, store: store, js: o.JetStream, control: o.Control, instance: o.Instance, now: o.Clock.Now, ahead: o.Clock.Ahead,
		recovered: func() (int, bool) { return u.now(store).recovered(o.Caller) }, price: func() (int64, bool) { return u.now(store).price(o.Caller) },
		quiet: func() bool { return u.isQuiet(store, o.Caller) }, changed: func() {}, lost: o.Ledger.lost, damaged: o.Ledger.damaged, settled: make(chan struct{}), wake: make(chan struct{}, 1),
		log: u.log(o),
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
	case why == "":
	case why == noAccount && extent.First <= 1 && extent.Last <= mostUnread && a.lost() == 0: // the ledger has every call
		a.note.Born, a.note.Read, a.note.Account = extent.Born, 0, bucket.NewAccount(store.Rules())
		if err := a.put(ctx); err != nil {
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

// noAccount is the reason for a missing account if weir is new, or was of a version that kept none.
const noAccount = "no account was kept"

// bootID identifies the time since the machine was started: what was not synced before that is lost. It is "?" if the
// system does not tell.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(id))
}

// recall reads the stored account, or returns why it cannot be used.
func (a *accounts) recall(ctx context.Context, extent ledger.Extent, boot string, early time.Duration) (why string, err error) {
	m, err := stream.AskLeader(ctx, a.js.Conn(), "KV_"+a.control.Bucket(), fmt.Sprintf(`{"last_by_subj":"$KV.%s.%s"}`, a.control.Bucket(), accountKey(a.of.name)))
	if err != nil {
		return "", fmt.Errorf("account of the last run: %w", err)
	}
	if m == nil {
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

// beginAnew takes what the limits count now for what the ledger says. That includes all that was granted, and may be
// too much.
func (a *accounts) beginAnew(ctx context.Context, extent ledger.Extent, why string) error {
	if len(a.store.Bounds()) > 0 {
		a.log.Info("the ledger does not say what limits used before the start: it counts as used", "reason", why)
	}
	a.note.Born, a.note.Read, a.note.Lost, a.note.Account = extent.Born, extent.Last, a.lost(), a.store.Account()
	if err := a.put(ctx); err != nil {
		return err
	}
	a.correct(nil)
	return nil
}

func (a *accounts) put(ctx context.Context) error {
	data, err := json.Marshal(a.note)
	if err != nil {
		panic("an account that JSON cannot carry: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, accountWait)
	defer cancel()
	if _, err := a.control.Put(ctx, accountKey(a.of.name), data); err != nil {
		return fmt.Errorf("account of the limits: %w", err)
	}
	a.stored = a.note.Read
	return nil
}

// run puts the use by former processes in force once it is known, and keeps the account up to date until ctx ends.
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
	calls  int // that were counted
}

// advance reads on in the ledger. The first time it also corrects what the limits count for former processes.
//
// It asks for the ledger's end before it asks for the limits: a limit that is new to the account came into force after
// that, so no record up to there names it.
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
	if d.nothingCounts() { // a limit added later is filled in from the ledger
		d.note.Read = extent.Last
		return a.adopt(ctx, d)
	}
	whole := d.former != nil // a check that no record from before the start is missing
	err := ledger.ReadCharges(ctx, a.js, ledger.Charges{API: a.of.api(), After: d.note.Read, Last: extent.Last, Whole: whole}, func(c *ledger.Record, seq uint64) {
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

// draft returns a draft that begins with what is known, for the limits that are in force now.
func (a *accounts) draft() *draft {
	d := &draft{note: a.note, rules: a.store.Rules()}
	d.note.Account = a.note.Account.Clone()
	present := a.store.Account()
	unsure := d.note.Account.Follow(present)
	switch ahead := a.ahead(); {
	case ahead > a.shifted+clock.Step: // the times that sliding quotas know are by a clock that was left
		a.shifted = ahead
		unsure = append(unsure, d.note.Account.Slide(present)...)
	case ahead < a.shifted-clock.Step: // the periods of other quotas too
		a.shifted = ahead
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

// count counts a call in the limits that were in force when it was made.
func (d *draft) count(account *bucket.Account, c *ledger.Record) {
	for i := range d.rules.Shared {
		l := &d.rules.Shared[i]
		if units, in := c.Took(l); in {
			account.Add(d.rules, l.Name, ChargedAt(c), units)
		}
	}
}

// slotAfter is how long after its intent was stored a call starts at the latest: a slot that is farther away is given
// back.
const slotAfter = 5 * time.Second

// ChargedAt returns when a call counts: at its slot, by the calendar. If a former process left the call without a
// record, its slot is unknown. If it is also unknown whether the call was made, Started is its earliest start, and it
// counts slotAfter later: at the edge of a period, in the next one.
func ChargedAt(c *ledger.Record) bucket.Micros {
	switch {
	case !c.Planned.IsZero():
		return bucket.MicrosOf(c.Planned)
	case c.Outcome == ledger.Done:
		return bucket.MicrosOf(c.Started)
	}
	return bucket.MicrosOf(c.Started.Add(slotAfter))
}

// isFormer reports whether a record is of a call that another process made: this process counts no grant for it.
func (a *accounts) isFormer(c *ledger.Record, seq uint64) bool {
	return seq <= a.began || c.Planned.IsZero() || bucket.MicrosOf(c.Planned) < a.start || c.Instance != a.instance
}

// adopt stores an account and, the first time, puts the use by former processes in force. The order matters: the limits
// may count less than what was restored only after a restart would begin with the account.
func (a *accounts) adopt(ctx context.Context, d *draft) error {
	now := a.now() + a.ahead()
	d.note.Account.Forget(d.rules, now)
	if d.former != nil {
		d.former.Forget(d.rules, now)
		a.addUnlogged(d, now)
	}
	former := a.former
	a.note, a.former = d.note, d.former
	if former == nil && d.calls == 0 && d.note.Read-a.stored < mostIdle {
		return nil
	}
	if err := a.put(ctx); err != nil {
		return err
	}
	if d.former != nil {
		a.correct(d.former)
	}
	return nil
}

// addUnlogged counts calls that may have been under way at a death and that left no record: as many as there may be,
// but never more than the bound allows for.
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

// correct replaces the bounds.
func (a *accounts) correct(former *bucket.Account) {
	a.former = nil
	a.store.Correct(former)
	if len(a.store.Partial()) == 0 {
		a.settle()
	}
	a.changed()
}

// settle ends the waiting of AwaitExact.
func (a *accounts) settle() {
	select {
	case <-a.settled:
	default:
		close(a.settled)
	}
}
