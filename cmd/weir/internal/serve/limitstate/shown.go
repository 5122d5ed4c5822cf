package limitstate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/dispatcher/schedule/limits"
)

// LimitShown is a limit's level as operators see it.
type LimitShown struct {
	Limit       string     `json:"limit"`
	Replica     string     `json:"replica,omitempty"` // of a limit of each replica: the replica that uses so much of it
	Used        int64      `json:"used"`
	Count       int64      `json:"count"`
	Unit        Unit       `json:"unit"`
	Until       *time.Time `json:"until,omitempty"`        // end of the period
	Shadow      bool       `json:"shadow,omitempty"`       // the limit only watches
	Held        int64      `json:"held,omitempty"`         // calls that it would have held if it did not only watch
	Unknown     bool       `json:"unknown,omitempty"`      // the limit counts as used up until the ledger is added up
	Why         string     `json:"why,omitempty"`          // why the count is unknown or incomplete, and what to do
	PerMS       int64      `json:"per_ms,omitempty"`       // of a rate: Used counts the calls started within the last PerMS
	Bound       bool       `json:"bound,omitempty"`        // Used is an upper bound until calls before the start are added up
	Share       int64      `json:"share,omitempty"`        // the part of an account's limit that this site enforces, in percent; absent: all of it
	Excess      int64      `json:"excess,omitempty"`       // units that the vendor counts and weir does not; a quota's Used includes them
	ExcessUntil *time.Time `json:"excess_until,omitempty"` // when the vendor's count begins anew
}

// Shown returns an api's levels for operators.
func (b *Levels) Shown(api string) (limits []LimitShown) {
	for _, l := range b.Of(api) {
		s := LimitShown{
			Limit: l.Limit.Name, Used: l.Used, Count: l.Count, Unit: InUnits, Shadow: l.Limit.Shadow, Held: l.Held, Unknown: l.Unknown, Why: b.why(api, l),
			Bound: l.Bound, Share: l.Limit.Share,
		}
		if l.Limit.Budget != nil {
			s.Unit = InMoney
		}
		if l.Start < l.End {
			until := l.End.Time()
			s.Until = &until
		}
		if l.Excess > 0 {
			until := l.ExcessUntil.Time()
			s.Excess, s.ExcessUntil = l.Excess, &until
		}
		limits = append(limits, s)
	}
	return limits
}

// WithUses adds the use of rates and the number of running calls, as the given replica counts them. No store keeps a
// level of these.
func WithUses(all []LimitShown, uses []limits.Use, instance string) []LimitShown {
	for _, u := range uses {
		s := LimitShown{Limit: u.Limit, Used: u.Used, Count: u.Count, Unit: InUnits, PerMS: u.Per.Milliseconds(), Share: u.Share}
		if u.Per == 0 {
			s.Unit = InCalls
		}
		if u.Replica {
			s.Replica = instance
		}
		if i := slices.IndexFunc(all, func(l LimitShown) bool { return l.Limit == u.Limit }); i >= 0 {
			s.Shadow, s.Held = all[i].Shadow, all[i].Held
			s.Excess, s.ExcessUntil = all[i].Excess, all[i].ExcessUntil
			all[i] = s
			continue
		}
		all = append(all, s)
	}
	return all
}

// why returns why the use of a limit is unknown, or which calls its count lacks.
func (b *Levels) why(api string, l bucket.Level) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.watches {
		switch {
		case w.api != api:
		case l.Unknown:
			return w.unknown()
		default:
			return w.gap(l.Limit.Name)
		}
	}
	return ""
}

// Lasts reports whether the limit, once used up, holds its api until its period ends. That is true for a quota or a
// budget, and false for a rate and for calls in flight.
func (l *LimitShown) Lasts() bool {
	return l.PerMS == 0 && l.Unit != InCalls && l.Count > 0 && !l.Shadow
}

// UsedUp reports whether a quota or budget has nothing left.
func (l *LimitShown) UsedUp() bool { return l.Lasts() && !l.Unknown && !l.Bound && l.Used >= l.Count }

// Text says how much of a limit is used.
func (l *LimitShown) Text() string {
	text := ""
	switch {
	case l.Unknown:
		text = "counts as used up: what was used is not known"
		if l.Why != "" {
			text += ": " + l.Why
		}
	case l.Unit == InCalls:
		text = fmt.Sprintf("%d of %d calls running", l.Used, l.Count)
	case l.PerMS > 0:
		text = fmt.Sprintf("%d of %d used in the last %s", l.Used, l.Count, cli.Brief(time.Duration(l.PerMS)*time.Millisecond))
	case l.Count > 0:
		text = Amount(l.Used, l.Unit) + " of " + Amount(l.Count, l.Unit) + " used"
		if l.Bound {
			text = "at most " + text
		}
		if l.Until != nil {
			text += " until " + cli.ClockTime(*l.Until)
		}
	}
	if l.Replica != "" {
		text += " at " + cli.Visible(l.Replica)
	}
	if l.Share > 0 && text != "" {
		text += fmt.Sprintf(" (this site has %d%%)", l.Share)
	}
	if l.Bound {
		text += ": what was called before the start is being added up"
	}
	if l.Why != "" && !l.Unknown {
		text += ": " + l.Why
	}
	if more := l.ExcessText(); more != "" {
		if text != "" {
			text += "; "
		}
		text += more
	}
	if l.Shadow {
		if text != "" {
			text += ", "
		}
		text += "only watches: would have held " + strconv.FormatInt(l.Held, 10) + " calls"
	}
	return text
}

// ExcessText says how many more units the vendor counts than weir; it returns "" if there is no excess.
func (l *LimitShown) ExcessText() string {
	if l.Excess <= 0 || l.ExcessUntil == nil {
		return ""
	}
	return fmt.Sprintf("the vendor counts %d more than weir until %s", l.Excess, cli.ClockTime(*l.ExcessUntil))
}

// Unit is what a limit counts.
type Unit string

// The units.
const (
	InUnits Unit = "units"      // a call takes one unit unless the limit has a cost
	InCalls Unit = "calls"      // running calls
	InMoney Unit = "millionths" // millionths of the currency
)

// Amount formats a number for people.
func Amount(n int64, u Unit) string {
	if u == InMoney {
		return grammar.Money(n).String()
	}
	return strconv.FormatInt(n, 10)
}
