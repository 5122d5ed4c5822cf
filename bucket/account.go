package bucket

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Account holds the use of an api's quotas and budgets. An account that is added up from the records of calls gives the
// exact use before a crash. The restored meters do not, because a snapshot claims units ahead (snapshot.go). Times are
// by the calendar's clock. An account is not safe for concurrent use.
type Account struct {
	Limits []LimitAccount `json:"limits"`
}

// LimitAccount holds the use of one quota or budget. A calendar or fixed limit counts the newest period in which a call
// was made. A sliding limit lists the times and units of its calls in the order of time.
type LimitAccount struct {
	Name  string     `json:"name"`
	By    string     `json:"by"` // the limit's periods; if they change, this count no longer applies
	Start Micros     `json:"start,omitempty"`
	End   Micros     `json:"end,omitempty"`
	Used  int64      `json:"used,omitempty"`
	Log   [][2]int64 `json:"log,omitempty"`
}

// mostLogged bounds the entries of a sliding quota's account. Beyond it two neighbours become one, with the later time.
const mostLogged = 2 * maxEntries

// NewAccount returns an account of the rules' quotas and budgets without any use.
func NewAccount(rules Rules) *Account {
	a := &Account{}
	for i := range rules.Shared {
		if l := &rules.Shared[i]; l.accounted() {
			a.Limits = append(a.Limits, LimitAccount{Name: l.Name, By: l.quota().by()})
		}
	}
	return a
}

// accounted reports whether a limit has an account. A shadow limit has one too, since it may be put in force.
func (l *Limit) accounted() bool { return l.quota() != nil }

// quota returns the quota, or the quota of a budget; nil for other limits.
func (l *Limit) quota() *Quota {
	if l.Budget != nil {
		return &l.Budget.Quota
	}
	return l.Quota
}

// by names the periods of a quota.
func (q *Quota) by() string {
	if q.Window == Calendar {
		return fmt.Sprintf("%s %s %s", q.Window, q.Unit, q.Zone)
	}
	return fmt.Sprintf("%s %s", q.Window, q.Per)
}

// Of returns the account of one limit, nil if there is none.
func (a *Account) Of(name string) *LimitAccount {
	if a == nil {
		return nil
	}
	for i := range a.Limits {
		if a.Limits[i].Name == name {
			return &a.Limits[i]
		}
	}
	return nil
}

// Clone returns a copy that shares nothing.
func (a *Account) Clone() *Account {
	c := &Account{Limits: slices.Clone(a.Limits)}
	for i := range c.Limits {
		c.Limits[i].Log = slices.Clone(c.Limits[i].Log)
	}
	return c
}

// Follow gives the account the same limits as present, which holds this process's own counts. A new limit begins
// without use. If a limit's periods have changed, Follow takes its count from present and returns its name.
func (a *Account) Follow(present *Account) (changed []string) {
	next := make([]LimitAccount, len(present.Limits))
	for i := range present.Limits {
		now, was := &present.Limits[i], a.Of(present.Limits[i].Name)
		switch {
		case was == nil:
			next[i] = LimitAccount{Name: now.Name, By: now.By}
		case was.By != now.By:
			next[i] = *now
			changed = append(changed, now.Name)
		default:
			next[i] = *was
		}
	}
	a.Limits = next
	return changed
}

// Slide copies the counts of sliding quotas from present, and returns their names.
func (a *Account) Slide(present *Account) (changed []string) {
	for i := range a.Limits {
		if now := present.Of(a.Limits[i].Name); now != nil && strings.HasPrefix(now.By, string(Sliding)) {
			a.Limits[i] = *now
			changed = append(changed, now.Name)
		}
	}
	return changed
}

// Add counts a call that took units from the limit called name at the time at. It ignores a call in a period before the
// newest.
func (a *Account) Add(rules Rules, name string, at Micros, units int64) {
	l := a.Of(name)
	i := slices.IndexFunc(rules.Shared, func(s Limit) bool { return s.Name == name })
	if l == nil || i < 0 || units <= 0 {
		return
	}
	q := rules.Shared[i].quota()
	switch {
	case q == nil || q.by() != l.By:
	case q.Window == Sliding:
		_, grain := rules.By(&rules.Shared[i]).SlidingBounds(*q)
		l.log(at, units, grain)
	default:
		p := q.spanAt(at)
		switch {
		case p.start > l.Start:
			l.Start, l.End, l.Used = p.start, p.end, units
		case p.start == l.Start:
			l.Used = min(int64(maxMicros), l.Used+units)
		}
	}
}

// log inserts a call of a sliding quota in the order of time. It rounds times up to a multiple of grain, and adds up
// calls of equal times.
func (l *LimitAccount) log(at Micros, units int64, grain Micros) {
	if grain > 0 {
		at = (at + grain - 1) / grain * grain
	}
	i := sort.Search(len(l.Log), func(i int) bool { return l.Log[i][0] >= int64(at) })
	if i < len(l.Log) && l.Log[i][0] == int64(at) {
		l.Log[i][1] += units
		return
	}
	l.Log = slices.Insert(l.Log, i, [2]int64{int64(at), units})
	if len(l.Log) <= mostLogged {
		return
	}
	half := l.Log[:0]
	for i := 1; i < len(l.Log); i += 2 {
		half = append(half, [2]int64{l.Log[i][0], l.Log[i-1][1] + l.Log[i][1]})
	}
	if len(l.Log)%2 == 1 {
		half = append(half, l.Log[len(l.Log)-1])
	}
	l.Log = half
}

// Forget drops the calls of sliding quotas that no longer count at now.
func (a *Account) Forget(rules Rules, now Micros) {
	for i := range rules.Shared {
		s := &rules.Shared[i]
		l, q := a.Of(s.Name), s.quota()
		if l == nil || q == nil || q.Window != Sliding {
			continue
		}
		life, _ := rules.By(s).SlidingBounds(*q)
		old := sort.Search(len(l.Log), func(i int) bool { return Micros(l.Log[i][0])+life > now })
		l.Log = slices.Delete(l.Log, 0, old)
	}
}

// UsedAt returns the units of a limit that count at now. Forget must have dropped the old calls first.
func (l *LimitAccount) UsedAt(now Micros) (used int64) {
	if now < l.End {
		used = l.Used
	}
	for _, e := range l.Log {
		used += e[1]
	}
	return used
}
