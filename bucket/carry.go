package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// What a changed rate takes over.
//
// A call is judged by the rate under which it is granted. What was granted before counts, under whatever rate: a window
// of the new rate's length that holds a new call holds no more than the new rate lets pass. What is known of earlier
// calls is the bucket's TAT. Every unit was charged from its slot or later, so that of the units with slots at a or
// later there are at most
//
//	(TAT - a) / T
//
// Let d be the debt of the old bucket at the change, and D that of the new one. A window that begins x before the
// change and ends y after it holds at most (x+d)/T old units and B' + (y-D)/T' new ones. Together they must stay below
// n+1, where T' = W'/(n+1-B') and x+y = X, the longer of the two windows (they differ by the jitter). That is a
// straight line in y, so its two ends decide:
//
//	D = d*T'/T + X - W'  +  X * max(0, T'/T - 1)
//
// The first term is the units owed, in the new interval: a raised rate helps at once. The last is what a window may
// hold of calls that the old rate had already forgotten. It is too much for a bucket that was idle, of which d is
// negative.
//
// D says nothing of calls before the window, and the next change may be to a rate with a longer one. So the last old
// call owes at least its own new interval: then it can be found from the TAT again.
//
// What is not known counts as used. After the last old call the new bucket then owes its whole burst, and its first
// call comes when no window holds that call any more (pace.after). It never owes more than that: a change stops no call
// of one unit for longer than a window. A token bucket has no window: it owes its burst whenever it was slowed down.
//
// An earlier change within the window has forgotten what was called before it. Then nothing is known. A token bucket
// that is used as fast as it gains never forgets.

// pace is how a rate is kept.
type pace struct {
	interval Interval
	burst    int64
	window   Micros // in which it is counted, with the jitter; 0 for a token bucket
	late     Micros // by how much a call may come after its slot
}

func (r Rules) pace(rate Rate) pace {
	return pace{r.Interval(rate), r.Burst(rate), r.Window(rate), Micros(ceilMicros(r.Jitter))}
}

// Window returns the length of time in which slots of a rate are counted, 0 if it is counted by tokens. If headroom
// leaves less than one call in a period, it is the time between two calls.
func (r Rules) Window(rate Rate) Micros {
	if rate.Counted() == ByTokens {
		return 0
	}
	return max(Micros(ceilMicros(rate.Per)+ceilMicros(r.Jitter)), r.Interval(rate).times(1))
}

// memory returns after how long an empty bucket says nothing more about a rate of the same length.
func (r Rules) memory(rate Rate) Micros {
	return max(Micros(ceilMicros(rate.Per)+ceilMicros(r.Jitter)), r.Window(rate), r.Interval(rate).times(r.Burst(rate)))
}

// Memory returns the longest memory of any key's rate: a store must keep a key's bucket for that long after it is
// empty.
func (r Rules) Memory() Micros {
	longest := r.memory(r.Key.Rate)
	for i := range r.Overrides {
		if rate := r.Overrides[i].Rate; rate != nil {
			longest = max(longest, r.memory(*rate))
		}
	}
	return longest
}

// after returns the TAT of a bucket that owes all that a call at last, and any before it, can have taken.
func (p *pace) after(last Micros) Micros {
	window := p.window
	if window == 0 {
		window = p.interval.times(1)
	}
	return min(maxMicros, last+window+p.interval.times(p.burst-1))
}

// clear returns from when on a call at last, or any before it, says nothing about the bucket.
func (p *pace) clear(last Micros) Micros {
	if p.window == 0 {
		return p.after(last)
	}
	return last + p.window
}

// sees reports whether a bucket has seen every call that matters now, if its pace last changed at changed (0 for
// never).
func (p *pace) sees(changed, now Micros) bool {
	return changed == 0 || p.window != 0 && changed+p.window <= now
}

// carry converts the state from one pace to another. front is the latest slot that may have been given. certain is
// false if the old bucket has not seen every call of the new window.
//
// It uses floating point because the product of two intervals and a debt has no exact place in Lua. A microsecond at
// either end covers what that loses. With a shorter interval, the time between now and the last slot is waiting, not
// debt, and must not shrink. With a longer one it counts as debt, because it is unknown how much of it is debt.
func (g *gcra) carry(now, front Micros, from, to pace, certain bool) {
	if from == to {
		return
	}
	last := min(front, g.tat-Micros(from.interval.P/from.interval.Q)) // every slot owes at least one unit
	later := max(0, from.late-to.late)
	least, most := last+later+Micros(to.interval.P/to.interval.Q), to.after(last+later)
	ratio := to.interval.micros() / from.interval.micros()
	switch {
	case !certain || ratio > 1 && to.window == 0:
		g.tat = most
	case ratio > 1:
		reach := float64(to.window + later)
		debt := max(float64(g.tat-now)+1, -reach)
		g.tat = min(most, max(least, now+saturated(debt*ratio+float64(later)+reach*(ratio-1))))
	default:
		since := max(now, last)
		g.tat = min(most, since+saturated((float64(g.tat-since)+1)*ratio+float64(later)))
	}
	g.rem = 0
}

// saturated returns x rounded up, plus one, at most maxMicros.
func saturated(x float64) Micros { return Micros(min(float64(maxMicros), ceil(x)+1)) }

// turning is how the paces of keys have changed in a store, and so what the store may have forgotten. The zero value
// has forgotten nothing.
type turning struct {
	memory        Micros // how long a key whose bucket is empty is remembered
	known         Micros // latest time at which a key that is not remembered was called
	latest, first Micros // the last change of paces, and the one before it
	former        []Former
}

// Former are rules by which calls were made, until a time.
type Former struct {
	Rules Rules
	Until Micros
}

// Former says by which rules former processes made calls. If a key had another rate then, nothing is known of it: it
// may have been called until the end. Former must come after Restore and before the first Reserve.
func (m *Memory) Former(former []Former) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	now := e.tick(m.now())
	for _, f := range former {
		f.Until = min(f.Until, now) + Micros(ceilMicros(f.Rules.Jitter))
		if f.Until+e.turning.memory > now && f.Rules.KeyPaces() != e.rules.KeyPaces() {
			e.turning.former, e.turning.latest = append(e.turning.former, f), max(e.turning.latest, f.Until)
		}
	}
}

// called returns the latest time at which a key that is not remembered can have been called.
func (t *turning) called(key string, now Micros, own *pace) Micros {
	last := t.known
	for i := range t.former {
		if f := &t.former[i]; f.Until > last && own.clear(f.Until) > now && f.Rules.pace(f.Rules.For(key).Rate) != *own {
			last = f.Until
		}
	}
	return last
}

// turn notes that keys go by other rates from now on. Earlier calls may arrive later than the new rates assume, by
// later.
func (t *turning) turn(now, memory, later Micros) {
	if memory > t.memory {
		t.known = max(t.known, now-t.memory+later)
	}
	t.memory, t.first, t.latest = memory, t.latest, now+later
}

// open converts a key's state to its present pace.
func (t *turning) open(name string, key *keyState, now, front Micros, own pace) {
	// Keys that are as old may be forgotten: treat all alike. known is a time of arrivals, which may come later than slots.
	remembered := key.pace != (pace{}) && key.end()+max(0, key.pace.late-own.late) >= t.known
	switch {
	case remembered && key.pace == own:
		return
	case remembered:
		key.carry(now, max(front, t.first), key.pace, own, own.sees(t.first, now))
	default:
		if last := t.called(name, now, &own); own.clear(last) > now {
			key.tat, key.rem = own.after(last), 0
		}
	}
	key.pace, key.last = own, 0
}

// KeyPaces names the rates of all keys and what decides their paces. If two names are equal, so is the pace of every
// key.
func (r *Rules) KeyPaces() string {
	h := sha256.New()
	_, _ = fmt.Fprintln(h, r.Headroom, r.Jitter, r.Key.Rate)
	for i := range r.Overrides {
		if o := &r.Overrides[i]; o.Rate != nil {
			_, _ = fmt.Fprintf(h, "%q %v\n", o.Pattern, *o.Rate)
		} else {
			_, _ = fmt.Fprintf(h, "%q\n", o.Pattern)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
