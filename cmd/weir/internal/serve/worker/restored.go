package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/cmd/weir/internal/serve/restoreguard"
	"weir/dispatcher"
	"weir/dispatcher/ledger"
)

// The longest time until a write is on the server's disk: nats-server syncs every two minutes by default, the embedded
// server at least every second.
const (
	syncedOutside = 150 * time.Second
	syncedInside  = 3 * time.Second
)

// refuseRestored fails if the store was restored from a backup and no operator has allowed that. If an operator has
// allowed it, refuseRestored stores an order that says so, before any call is made. Every later start follows that
// order.
func (w *records) refuseRestored(ctx context.Context, c *config.Config) error {
	k, err := w.openWitness()
	if err != nil {
		return err
	}
	found, err := k.Examine(ctx)
	if err != nil {
		return err
	}
	order, err := restoreguard.ReadOrder(ctx, w.control, w.nc)
	if lost := errors.Is(err, restoreguard.ErrOrderLost); lost && !w.settings.Restored {
		return cli.Refused(fmt.Errorf("%w: start once with `weir serve --restored`. Without it limits might be exceeded, and jobs that were called might be called again", err))
	} else if err != nil && !lost {
		return err
	}
	var open []string
	settled := len(found) > 0
	for i := range found {
		if !found[i].Settled(order) {
			open, settled = append(open, found[i].What), false
		}
	}
	switch {
	case w.settings.Restored && !settled:
		if order, err = w.orderRestored(ctx, c, open); err != nil {
			return err
		}
	case len(open) > 0 && !w.settings.Moved:
		return refusedStore(open)
	case len(open) > 0:
		w.log.Warn("the store counts as that of the weir that was stopped last, as --moved says", "signs", strings.Join(open, "; "))
	case order != nil && w.settings.Counted && !order.Counted:
		order.Counted = true
		if err := order.Give(ctx, w.control); err != nil {
			return err
		}
	}
	if err := w.goOnRestored(ctx, order); err != nil {
		return err
	}
	if err := k.Begin(ctx, w.flushControl); err != nil {
		return err
	}
	w.witness = k
	if w.redis != nil {
		w.redis.WhenLate(func(ctx context.Context, notes *limitstate.Notes) error { return w.refuseLate(ctx, notes, order) })
	}
	return nil
}

// refuseLate examines the notes in a Redis that was unreachable at the start, and fails if they show a restored store.
// No call was made before, because the limits open only after refuseLate.
func (w *records) refuseLate(ctx context.Context, notes *limitstate.Notes, order *restoreguard.Order) error {
	found, err := w.witness.ExamineLate(ctx, notes)
	switch {
	case err != nil:
		return err
	case found == nil || found.Settled(order):
		return nil
	case w.settings.Moved:
		w.log.Warn("the store counts as that of the weir that was stopped last, as --moved says", "signs", found.What)
		return nil
	}
	return &limitstate.LateError{Err: refusedStore([]string{found.What})}
}

// flushControl blocks until all writes to the control bucket are on disk. It does nothing if the server is external.
func (w *records) flushControl(ctx context.Context) error {
	if w.server == nil || w.server.Disk() == nil {
		return nil
	}
	return w.server.Disk().Flush(ctx, "KV_"+w.control.Bucket())
}

// openWitness returns the keeper of the notes about the store, with the places outside the store where it keeps them.
func (w *records) openWitness() (*restoreguard.Keeper, error) {
	o := restoreguard.Options{Conn: w.nc, JetStream: w.js, Control: w.control, Synced: syncedOutside, Log: w.log.With("component", "witness")}
	if w.server != nil {
		o.DataDir, o.Synced = w.settings.DataDir, syncedInside
		o.Unsynced = w.settings.Durability != environment.DurabilityAlways
	}
	if w.settings.StateDir != "" {
		switch dir, err := restoreguard.OpenDirectory(w.settings.StateDir); {
		case err == nil:
			o.Places = append(o.Places, dir)
		case w.server != nil:
			return nil, err
		default: // an image may name a missing data directory and use an external server
			w.log.Warn("nothing is noted beside the streams on this machine", "err", err)
		}
	}
	if w.redis != nil {
		o.Places = append(o.Places, patient{w.redis.Notes(), w})
	}
	return restoreguard.NewKeeper(o), nil
}

// patient is Redis as a place for notes. If Redis is unreachable at the start, reading logs that and returns no note.
type patient struct {
	restoreguard.Place

	w *records
}

// Read implements restoreguard.Place.
func (p patient) Read(ctx context.Context, store string) ([]byte, error) {
	data, err := p.Place.Read(ctx, store)
	if errors.Is(err, redisstore.ErrUnreachable) {
		p.w.log.Warn("Redis does not answer: no call starts until it has said whether the streams were restored from a backup")
		return nil, nil
	}
	return data, err
}

// Write implements restoreguard.Place.
func (p patient) Write(ctx context.Context, store string, data []byte) error {
	if err := p.Place.Write(ctx, store, data); err != nil && !errors.Is(err, redisstore.ErrUnreachable) {
		return err
	}
	return nil
}

// refusedStore returns the error that weir does not start with a store. The error names the two ways to start.
func refusedStore(signs []string) error {
	return cli.Refused(fmt.Errorf("%s. If this is a backup, or if in doubt, start once with `weir serve --restored`: what may have been called since it was made is parked as "+
		"`unknown`, and no limit is exceeded. If it is what the weir that was stopped last has left, in another place, start once with "+
		"`weir serve --moved`: jobs that were called since would be called again. `weir help store` says more",
		strings.Join(signs, "; and ")))
}

// orderRestored stores the order that says that the store was restored, and logs what is lost.
func (w *records) orderRestored(ctx context.Context, c *config.Config, signs []string) (*restoreguard.Order, error) {
	order, err := restoreguard.NewOrder(ctx, w.js, ledger.CallsStream, time.Now())
	if err != nil {
		return nil, err
	}
	order.Who, order.Counted = cli.User(), w.settings.Counted
	// The pauses come first: once the order is stored, no later start pauses anything.
	if err := w.pauseShared(ctx, c); err != nil {
		return nil, err
	}
	if err := w.flushControl(ctx); err != nil {
		return nil, err
	}
	if err := order.Give(ctx, w.control); err != nil {
		return nil, err
	}
	if err := w.flushControl(ctx); err != nil {
		return nil, err
	}
	if len(signs) == 0 {
		w.log.Warn("only --restored says that the store was restored: give it to one start only")
	}
	w.log.Error("the store was restored from a backup: jobs that were accepted after the backup are gone, with their results, letters and records; "+
		"jobs of the backup that may have been called since are parked as unknown, or called again under their idempotency keys",
		"last_call", order.From, "newest", order.Newest, "restored_at", order.At, "signs", strings.Join(signs, "; "), "who", order.Who)
	return order, nil
}

// pauseShared pauses the apis of accounts that sites share. The restored store may have the shares from before a move,
// which only the other sites know. It may also be from before the account had shares. So a weir with a site pauses the
// apis of all accounts.
func (w *records) pauseShared(ctx context.Context, c *config.Config) error {
	for _, a := range mayBeShared(c, w.settings.Site) {
		account, _ := c.Account(a.Account)
		why := "the store was restored and may have an old share of account " + account.Name + ": run weir shares, then weir resume"
		if err := admin.StorePause(ctx, w.control, a.Name, cli.User(), why); err != nil {
			return err
		}
		w.log.Warn("an api is paused, because the share of its account may be that of before a move: run weir shares "+account.Name+
			" with the wanted shares, and then weir resume "+a.Name+"; apply nothing before weir shares, because an api that joins the account is not paused", "api", a.Name, "account", account.Name)
	}
	return nil
}

// mayBeShared returns the apis of accounts with shares. If this weir has a site, it returns the apis of all accounts.
func mayBeShared(c *config.Config, site string) (apis []*config.API) {
	for i := range c.APIs {
		a := &c.APIs[i]
		if account, ok := c.Account(a.Account); ok && (len(account.Shares) > 0 || site != "") {
			apis = append(apis, a)
		}
	}
	return apis
}

// goOnRestored makes the dispatcher follow the order. It does nothing if order is nil.
func (w *records) goOnRestored(ctx context.Context, order *restoreguard.Order) error {
	if order == nil {
		return nil
	}
	until, err := order.Until(ctx, w.js)
	if err != nil {
		return err
	}
	w.restored = &dispatcher.Restoration{From: order.From, At: order.At, Until: until, Counted: order.Counted}
	return nil
}
