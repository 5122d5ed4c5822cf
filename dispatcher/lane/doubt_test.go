package lane

import (
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// TestDoubt checks that a job may be called while no earlier call may have been processed, and after that only under
// the same identity.
func TestDoubt(t *testing.T) {
	keyed := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}}
	other := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Other"}}
	none, now := &httpcall.API{}, time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		what               string
		history            func(d *Doubt)
		keyed, other, none bool
	}{
		{"nothing", func(*Doubt) {}, true, true, true},
		{"pushed back", func(d *Doubt) { d.Add(deadletter.NotBilled, keyed.KeyIdentity()) }, true, true, true},
		{"in doubt", func(d *Doubt) { d.Add(deadletter.BilledUnknown, keyed.KeyIdentity()) }, true, false, false},
		{"charged", func(d *Doubt) { d.Add(deadletter.BilledYes, keyed.KeyIdentity()) }, true, false, false},
		{"in doubt without a key", func(d *Doubt) { d.Add(deadletter.BilledUnknown, "") }, false, false, false},
		{"in doubt, under an unknown key", func(d *Doubt) { d.Recall(deadletter.BilledUnknown, "") }, true, true, false},
		{"in doubt, then pushed back under another key", func(d *Doubt) {
			d.Add(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.Add(deadletter.NotBilled, other.KeyIdentity())
		}, true, false, false},
		{"in doubt under two keys", func(d *Doubt) {
			d.Recall(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.Recall(deadletter.BilledUnknown, other.KeyIdentity())
		}, false, false, false},
	} {
		var d Doubt
		c.history(&d)
		if d.Allows(keyed, "", now) != c.keyed || d.Allows(other, "", now) != c.other || d.Allows(none, "", now) != c.none {
			t.Errorf("%s: under its key %v, under another %v, under none %v", c.what, d.Allows(keyed, "", now), d.Allows(other, "", now), d.Allows(none, "", now))
		}
	}
}

// TestDoubtOfPack checks that a job whose pack may have been processed is called again in that pack only, and not at all
// if it is not known which pack that was.
func TestDoubtOfPack(t *testing.T) {
	single := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}}
	packs := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}, Pack: &httpcall.Pack{Jobs: 5}}
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		what            string
		history         func(d *Doubt)
		its, other, new bool // pack
	}{
		{"not processed", func(d *Doubt) { d.Add(deadletter.NotBilled, packs.PackIdentity("p", now)) }, true, true, true},
		{"in doubt", func(d *Doubt) { d.Add(deadletter.BilledUnknown, packs.PackIdentity("p", now)) }, true, false, false},
		{"in doubt, called alone before there were packs", func(d *Doubt) { d.Add(deadletter.BilledUnknown, single.CallIdentity(now)) }, false, false, false},
		{"in doubt, under an unknown key", func(d *Doubt) { d.Recall(deadletter.BilledUnknown, "") }, false, false, false},
	} {
		var d Doubt
		c.history(&d)
		its, other, fresh := d.Allows(packs, "p", now), d.Allows(packs, "q", now), d.Allows(packs, "", now)
		if its != c.its || other != c.other || fresh != c.new {
			t.Errorf("%s: in its pack %v, in another %v, in a new one %v", c.what, its, other, fresh)
		}
		if !fresh && d.WhyNot(packs, "", true) == "" {
			t.Errorf("%s: its letter does not say why", c.what)
		}
	}
}

// TestDoubtOfForgottenKey checks that a job is called again under its key only while the api knows the key of its first
// call that may have been processed, whatever calls came after it, and not at all if that call's time is unknown.
func TestDoubtOfForgottenKey(t *testing.T) {
	const day = 24 * time.Hour
	api := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key", For: day}}
	other := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Other", For: day}}
	always := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}}
	first := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		what    string
		history func(d *Doubt)
		lasts   time.Duration // after first; below zero: not at all
	}{
		{"one call", func(d *Doubt) { d.Add(deadletter.BilledUnknown, api.CallIdentity(first)) }, day - time.Minute},
		{"a second call", func(d *Doubt) {
			d.Add(deadletter.BilledUnknown, api.CallIdentity(first))
			d.Add(deadletter.BilledUnknown, api.CallIdentity(first.Add(day/2)))
		}, day - time.Minute},
		{"the same, read in another order", func(d *Doubt) {
			d.Recall(deadletter.BilledUnknown, api.CallIdentity(first.Add(day/2)))
			d.Recall(deadletter.BilledUnknown, api.CallIdentity(first))
		}, day - time.Minute},
		{"a call that was pushed back before", func(d *Doubt) {
			d.Add(deadletter.NotBilled, api.CallIdentity(first.Add(-day)))
			d.Add(deadletter.BilledUnknown, api.CallIdentity(first))
		}, day - time.Minute},
		{"an unknown key", func(d *Doubt) { d.Recall(deadletter.BilledUnknown, "") }, -1},
		{"a call at an unknown time, and one that is known", func(d *Doubt) {
			d.Recall(deadletter.BilledUnknown, "")
			d.Add(deadletter.BilledUnknown, api.CallIdentity(first))
		}, -1},
		{"a known call, and a later one under an unknown key", func(d *Doubt) {
			d.Add(deadletter.BilledUnknown, api.CallIdentity(first))
			d.Recall(deadletter.BilledUnknown, "")
		}, day - time.Minute},
		{"a call before it was known how long the api knows keys", func(d *Doubt) { d.Add(deadletter.BilledUnknown, always.CallIdentity(first)) }, day - time.Minute},
		{"a call when the api was thought to know keys for longer", func(d *Doubt) {
			longer := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key", For: 7 * day}}
			d.Add(deadletter.BilledUnknown, longer.CallIdentity(first))
		}, day - time.Minute},
		{"another key", func(d *Doubt) { d.Add(deadletter.BilledUnknown, other.CallIdentity(first)) }, -1},
	} {
		var d Doubt
		c.history(&d)
		if got := d.Allows(api, "", first); got != (c.lasts >= 0) {
			t.Errorf("%s: it may be called at once: %v", c.what, got)
		}
		if got := d.Allows(always, "", first.Add(1000*day)); got != deadletter.SameKey(d.Identity, always.KeyIdentity()) && d.Identity != "" {
			t.Errorf("%s: by an api that forgets nothing it may be called again: %v", c.what, got)
		}
		if c.lasts < 0 {
			continue
		}
		if before, after := d.Allows(api, "", first.Add(c.lasts-time.Second)), d.Allows(api, "", first.Add(c.lasts)); !before || after {
			t.Errorf("%s: it may be called just before %s: %v, and then: %v", c.what, c.lasts, before, after)
		}
	}
}
