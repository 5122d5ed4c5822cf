package fakeapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxUseLimits bounds Options.Limits.
const maxUseLimits = 8

// Tokens are the tokens that a call to a language model uses.
type Tokens struct {
	Input, Output int64
	// Written and Read are the input tokens written to the vendor's cache and read from it. Input does not include
	// them.
	Written, Read int64
	// Max is the request's max_tokens; 0 if it has none.
	Max int64
}

// Weigh says how many units of a limit a call takes, and each of its tokens.
type Weigh struct{ Call, Input, Output, Written, Read int64 }

// of returns the units of a call that uses t.
func (w Weigh) of(t Tokens) int64 {
	return w.Call + w.Input*t.Input + w.Output*t.Output + w.Written*t.Written + w.Read*t.Read
}

// MaxTokens says when max_tokens counts in place of the output. It is a closed set.
type MaxTokens string

const (
	// MaxNever counts the output from the call's arrival on. It is the zero value.
	MaxNever MaxTokens = ""
	// MaxRunning counts the larger of max_tokens and output while the call runs, and then the output.
	MaxRunning MaxTokens = "running"
	// MaxAlways counts the larger of max_tokens and output for good.
	MaxAlways MaxTokens = "always"
)

// UseLimit is a limit of what calls use: at most Count units in any period of length Per. It is a sliding log of the
// calls that the api let through, by the time of their arrival. A call that would exceed the limit gets 429 and uses
// nothing. A call that is not billed uses nothing after its end.
type UseLimit struct {
	// Name is the limit's name in the vendor's headers: requests, tokens, input_tokens or output_tokens. A limit with
	// any other name is in no header.
	Name  string
	Count int64
	Per   time.Duration
	Scope LimitScope
	Weigh Weigh
	Max   MaxTokens
}

func (l *UseLimit) validate() error {
	w := l.Weigh
	switch {
	case l.Name == "":
		return errors.New("each of Limits must have a Name")
	case l.Count < 1 || l.Per <= 0:
		return fmt.Errorf("limit %s: Count and Per must be above zero", l.Name)
	case l.Scope != EachKey && l.Scope != AllKeys:
		return fmt.Errorf("limit %s: Scope must be EachKey or AllKeys", l.Name)
	case l.Max != MaxNever && l.Max != MaxRunning && l.Max != MaxAlways:
		return fmt.Errorf("limit %s: unknown Max %q", l.Name, l.Max)
	case min(w.Call, w.Input, w.Output, w.Written, w.Read) < 0 || w == Weigh{}:
		return fmt.Errorf("limit %s: the weights must not be negative, and one must be above zero", l.Name)
	}
	return nil
}

// running returns the units that a call takes until its end. took returns those that it takes from then on.
func (l *UseLimit) running(t Tokens) int64 {
	if l.Max != MaxNever {
		t.Output = max(t.Output, t.Max)
	}
	return l.Weigh.of(t)
}

func (l *UseLimit) took(t Tokens) int64 {
	if l.Max == MaxAlways {
		t.Output = max(t.Output, t.Max)
	}
	return l.Weigh.of(t)
}

// useLog holds the units of one limit that each call of the last period takes, by the time of arrival. The book's lock
// guards it.
type useLog struct {
	entries []use
	sum     int64
}

// use is the units that one call takes.
type use struct{ at, number, units int64 }

// wait returns how much longer a call of this many units should have waited; 0 if it fits now. It drops the entries
// that no longer count: calls that are at least Per old. Calls that arrived a little later than this call but were read
// earlier do count.
func (l *useLog) wait(at, units int64, limit *UseLimit) time.Duration {
	old := 0
	for ; old < len(l.entries) && l.entries[old].at <= at-int64(limit.Per); old++ {
		l.sum -= l.entries[old].units
	}
	l.entries = slices.Delete(l.entries, 0, old)
	if units > limit.Count {
		return limit.Per // it never fits
	}
	left := limit.Count - l.sum
	for i := 0; left < units; i++ {
		if left += l.entries[i].units; left >= units {
			return time.Duration(l.entries[i].at + int64(limit.Per) - at)
		}
	}
	return 0
}

func (l *useLog) add(u use) {
	if u.units == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(l.entries, u, func(x, y use) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.number, y.number))
	})
	l.entries = slices.Insert(l.entries, i, u)
	l.sum += u.units
}

// settle replaces the units of a call.
func (l *useLog) settle(number, units int64) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if e := &l.entries[i]; e.number == number {
			l.sum += units - e.units
			e.units = units
			return
		}
	}
}

// left returns what is left of the limit at a time.
func (l *useLog) left(at int64, limit *UseLimit) allowance {
	a := allowance{left: max(0, limit.Count-l.sum)}
	if n := len(l.entries); n > 0 {
		a.resets = max(0, time.Duration(l.entries[n-1].at+int64(limit.Per)-at))
	}
	return a
}

// logsOf returns the log of each use limit for a key. The caller holds the book's lock.
func (b *book) logsOf(key string) []*useLog {
	logs := make([]*useLog, len(b.limits))
	kb := b.keys[key]
	for i := range b.limits {
		if logs[i] = &b.uses[i]; b.limits[i].Scope == EachKey && kb != nil {
			if kb.uses == nil {
				kb.uses = make([]useLog, len(b.limits))
			}
			logs[i] = &kb.uses[i]
		}
	}
	return logs
}

// spent is the result of spend.
type spent struct {
	over *UseLimit     // the limit that the call would exceed; nil: the call was let through
	wait time.Duration // how much longer it should have waited
	left []allowance   // of each use limit
}

// spend lets a call that uses t through, or returns the limit that it would exceed.
func (b *book) spend(arr *Arrival, t Tokens) (s spent) {
	if len(b.limits) == 0 {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	logs := b.logsOf(arr.Key)
	for i, log := range logs {
		if wait := log.wait(arr.At, b.limits[i].running(t), &b.limits[i]); wait > s.wait {
			s.over, s.wait = &b.limits[i], wait
		}
	}
	for i, log := range logs {
		if s.over == nil {
			log.add(use{arr.At, arr.Number, b.limits[i].running(t)})
		}
		s.left = append(s.left, log.left(arr.At, &b.limits[i]))
	}
	return s
}

// settleUse sets a call's final units in the use limits, after its end. The caller holds the lock.
func (b *book) settleUse(arr *Arrival) {
	for i, log := range b.logsOf(arr.Key) {
		units := int64(0)
		if arr.Billed {
			units = b.limits[i].took(arr.Used)
		}
		log.settle(arr.Number, units)
	}
}

// restoreUse counts a call of a ledger that is continued. The caller holds the lock.
func (b *book) restoreUse(arr *Arrival) {
	for i, log := range b.logsOf(arr.Key) {
		if arr.Billed {
			log.add(use{arr.At, arr.Number, b.limits[i].took(arr.Used)})
		}
	}
}

// Verdict says how full the windows of one limit were, by the ledger alone.
type Verdict struct {
	Limit string `json:"limit"`
	// Key is the key of the fullest window. It is empty if all keys share the limit.
	Key string `json:"key,omitempty"`
	// Count is how many units a window may have, and Fullest how many the fullest has. From and To are the times of the
	// fullest window's first and last call, as in Arrival.At.
	Count   int64 `json:"count"`
	Fullest int64 `json:"fullest"`
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	// Over is how many of the windows that end with an arrival have more than Count.
	Over int `json:"over"`
	// Used is the sum of all units. Share is the part of what the limit lets through, from the first arrival to the
	// last, that was used. If each key has the limit, Share is that of the busiest key.
	Used  int64   `json:"used"`
	Share float64 `json:"share"`
}

// Windows judges billed arrivals by limits. The judgement is exact: it covers every window of length Per that ends with
// an arrival, and so every window. It leaves out calls that still run, because their use is unknown.
func Windows(arrivals []Arrival, limits ...UseLimit) []Verdict {
	arrivals = ByTime(arrivals)
	var all []Verdict
	for i := range limits {
		l := &limits[i]
		v := Verdict{Limit: l.Name, Count: l.Count}
		if l.Scope == AllKeys {
			v.judge(l, "", arrivals)
		} else {
			for _, key := range KeysOf(arrivals) {
				v.judge(l, key, OfKey(arrivals, key))
			}
		}
		all = append(all, v)
	}
	return all
}

// judge adds the windows of one key to the verdict.
func (v *Verdict) judge(l *UseLimit, key string, arrivals []Arrival) {
	var window, used, from, to int64
	first := -1
	for i := range arrivals {
		if !arrivals[i].Billed {
			continue
		}
		if first < 0 {
			first, from = i, arrivals[i].At
		}
		to = arrivals[i].At
		for arrivals[first].At <= to-int64(l.Per) {
			window -= l.of(&arrivals[first])
			first++
		}
		for ; !arrivals[first].Billed; first++ {
		}
		units := l.of(&arrivals[i])
		window += units
		used += units
		if window > v.Fullest {
			v.Fullest, v.Key, v.From, v.To = window, key, arrivals[first].At, to
		}
		if window > l.Count {
			v.Over++
		}
	}
	v.Used += used
	span := max(to-from, int64(l.Per))
	v.Share = max(v.Share, float64(used)/float64(l.Count)*float64(l.Per)/float64(span))
}

// of returns the units of an arrival. They are 0 if it was not billed.
func (l *UseLimit) of(a *Arrival) int64 {
	if !a.Billed {
		return 0
	}
	return l.took(a.Used)
}
