package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// What a changed rate takes over.
//
// A call is judged by the rate under which it is given, and what was given before counts, under whatever rate: a window of
// the new rate's length that holds a new call holds no more than the new rate lets pass. What is known of earlier calls is
// the bucket's TAT. Every unit was charged from its slot or later, so that of the units with slots at a or later there are
// at most
//
//	(TAT - a) / T
//
// Be d the debt of the old bucket at the change, and D that of the new one. In a window that begins x before the change and
// ends y after it lie at most (x+d)/T old units and B' + (y-D)/T' new ones, and together they must stay below n+1, where
// T' = W'/(n+1-B') and x+y = X, the longer of the two windows (they differ by the jitter). That is a straight line in y, so
// that its two ends decide:
//
//	D = d*T'/T + X - W'  +  X * max(0, T'/T - 1)
//
// The first term is the units owed, in the new interval: a raised rate helps at once. The last is what a window may hold
// of calls that the old rate had already forgotten. It is too much for a bucket that was idle, of which d is negative.
//
// D says nothing of calls before the window, and the next change may be to a rate with a longer one. So the last old call owes its own
// new interval at least: then it can be found from the TAT again.
//
// What is not known counts as used. After the last old call the new bucket then owes its whole burst, and its first call
// comes when no window holds that call any more (pace.after). More than that is never owed: a change stops no call of one
// unit for longer than a window. A token bucket has no window: it owes its burst wherever it was slowed down.
//
// An earlier change within the window has forgotten what was called before it. Then nothing is known. A token bucket that is used as fast
// as it gains never forgets.

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

// Window is the length of time in which slots of a rate are counted, 0 where it is counted by tokens. Headroom may leave less than
// one call in a period: then it is the time between two.
func (r Rules) Window(rate Rate) Micros {
	if rate.Counted() == ByTokens {
		return 0
	}
	return max(Micros(ceilMicros(rate.Per)+ceilMicros(r.Jitter)), r.Interval(rate).times(1))
}

// memory is after how long an empty bucket says nothing more about a rate of the same length.
func (r Rules) memory(rate Rate) Micros {
	return max(Micros(ceilMicros(rate.Per)+ceilMicros(r.Jitter)), r.Window(rate), r.Interval(rate).times(r.Burst(rate)))
}

// Memory is the longest window of any key's rate: so long a store must know of a key's bucket that it has become empty.
func (r Rules) Memory() Micros {
	longest := r.memory(r.Key.Rate)
	for i := range r.Overrides {
		if rate := r.Overrides[i].Rate; rate != nil {
			longest = max(longest, r.memory(*rate))
		}
	}
	return longest
}

// after is the TAT of a bucket of which all is owed that a call at last, and any before it, can have taken.
func (p *pace) after(last Micros) Micros {
	window := p.window
	if window == 0 {
		window = p.interval.times(1)
	}
	return min(maxMicros, last+window+p.interval.times(p.burst-1))
}

// clear is from when on a call at last, or any before it, says nothing about the bucket.
func (p *pace) clear(last Micros) Micros {
	if p.window == 0 {
		return p.after(last)
	}
	return last + p.window
}

// sees reports whether a bucket whose pace was changed at a time, 0 for never, has seen every call that matters now.
func (p *pace) sees(changed, now Micros) bool {
	return changed == 0 || p.window != 0 && changed+p.window <= now
}

// carry goes over from one pace to another. front is the latest slot that may have been given; certain is false where the
// old bucket has not seen every call of the new window.
//
// It reckons by floating point because the product of two intervals and a debt has no exact place in Lua; a microsecond at either end
// covers what that loses. With a shorter interval, what lies between now and the last slot is waiting, not debt, and must not
// shrink; with a longer one it counts as debt, because what of it is debt is not known.
func (g *gcra) carry(now, front Micros, from, to pace, certain bool) {
	if from == to {
		return
	}
	last := min(front, g.tat-Micros(from.interval.P/from.interval.Q)) // every slot owes one unit at least
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

// saturated is x rounded up, and one more.
func saturated(x float64) Micros { return Micros(min(float64(maxMicros), ceil(x)+1)) }

// turning is how the paces of keys have changed in a store: what it may have forgotten. The zero value is a store that has
// forgotten nothing.
type turning struct {
	memory        Micros // how long a key is remembered whose bucket is empty
	known         Micros // a key that is not remembered was called then at the latest
	latest, first Micros // the last change of paces, and the one before it
	former        []Former
}

// Former are rules that calls were made by, until a time.
type Former struct {
	Rules Rules
	Until Micros
}

// Former tells by what rules former processes made calls. Of a key that had another rate then nothing is known: it may have been called
// until the end. It must come after Restore and before the first Reserve.
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

// called is when a key that is not remembered was called at the latest.
func (t *turning) called(key string, now Micros, own *pace) Micros {
	last := t.known
	for i := range t.former {
		if f := &t.former[i]; f.Until > last && own.clear(f.Until) > now && f.Rules.pace(f.Rules.For(key).Rate) != *own {
			last = f.Until
		}
	}
	return last
}

// turn notes that keys go by other rates from now on. Calls of before may come by so much later than the new rates reckon with.
func (t *turning) turn(now, memory, later Micros) {
	if memory > t.memory {
		t.known = max(t.known, now-t.memory+later)
	}
	t.memory, t.first, t.latest = memory, t.latest, now+later
}

// open brings a key's state to its present pace.
func (t *turning) open(name string, key *keyState, now, front Micros, own pace) {
	remembered := key.pace != (pace{}) && key.end() >= t.known // another may have been forgotten, as this one might
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

// KeyPaces names the rates of all keys, and what they are kept by: where the name is the same, every key has the same pace.
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
