package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// What a changed rate takes over.
//
// A call is granted by the present rate, and counts in every later rate as well. So if a window of the new rate holds a
// call that was granted by the new rate, it holds no more calls than the new rate lets pass, whatever was called
// before.
//
// # What is known
//
// A tally describes the calls of its limit by two numbers, TAT and since. T is the interval of its pace, J the jitter.
//
//  1. The number of calls that arrive until since is unknown: they were made under other rates, or by another process.
//  2. Of the calls that arrive at a or later, for any a > since, there are at most (E - a) / T, with E = TAT + J. Each
//     was charged T from its slot or later, and arrives J after its slot or earlier. This also holds if the bucket was
//     idle or forgotten in between: it was empty when it began anew.
//
// So the last call has arrived by A = max(since, E - T). The store also knows when the last call of any key arrives,
// and A is never later than that.
//
// # What is made of it
//
// Let W' be the new window with the jitter J', P' = W' - J', B' the burst and T' the interval: W' <= (N'+1-B') * T'. If
// the new TAT is X, the new calls with slots before y number less than B' + (y-X)/T'. There are two ways to choose X.
//
// forget: X = A + W' + (B'-1)*T'. The first new call comes when no window holds an old one. since becomes A, so 1 and 2
// hold. It is always right, needs nothing but A, and stops a call of one unit for no longer than a window.
//
// convert: X >= w - J' + (E-w) * T'/T for every window [w, w+P') that may hold old and new calls. It holds at most
// (E-w)/T old ones and less than B' + (w+P'-X)/T' new ones. Together that is less than B' + W'/T', so no more than N'.
// Such windows begin at A or before, and after now - P'. X is a straight line in w, so one end decides:
//
//   - The interval becomes shorter, or stays: w = A, or anything later. Then X also fits every earlier w. Statement 2
//     goes on to hold, in the new interval, and since stays. A raised rate helps at once. weir takes the later of A and
//     now + J, as if the bucket had drained at the former interval until now.
//   - It becomes longer: w = now - P'. Calls before that are no longer known: since becomes A.
//
// convert must know all calls of these windows: since is 0, or lies before every such w. Otherwise, or if forget gives
// the smaller X, weir uses forget.
//
// A token bucket of size C' at the api gains a token every 1/r' <= T', and had any number of them when the rate came
// into force. forget: it is empty at A, X = A + B'*T'. convert: from any w on there are at most (E-w)/T old calls and,
// before y, B' + (y-X)/T' new ones. With X >= w + (E-w) * T'/T that is no more than B' + (y-w)/T', as if all were calls
// of the new rate, and pace.go has shown how these fit. But w may be arbitrarily early. So the interval must not become
// longer, and since must be 0.
//
// # Keys that a store has forgotten
//
// A store forgets a key that has been idle for a while (turning). Calls under the key's own rate before that do not
// matter: the bucket was empty. Forgotten calls under another rate arrived by called, the latest time that the store
// can have forgotten, and by the last change (latest). So calls until the earlier of both are unknown, and forget
// applies.

// pace is a rate in the form in which meters count it.
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

// memory returns how long a bucket must be kept after it became empty, in case its rate changes to another one with the
// same period.
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

// after returns the TAT of a bucket whose calls until last are unknown. It is X of "forget" at the head of this file,
// with last as A.
func (p *pace) after(last Micros) Micros {
	window := p.window
	if window == 0 {
		window = p.interval.times(1)
	}
	return min(maxMicros, last+window+p.interval.times(p.burst-1))
}

// clear returns the time from which calls that arrived until last no longer affect a bucket.
func (p *pace) clear(last Micros) Micros {
	if p.window == 0 {
		return p.after(last)
	}
	return last + p.window
}

// tally is a bucket and the pace in which it is counted. Calls that arrived until since may not have been counted;
// since is 0 if there are no such calls.
type tally struct {
	gcra
	pace
	since Micros
}

// unknown returns the tally of a bucket that may not have counted all calls. No call arrived between last and now, and
// the bucket has counted every call that arrived after since.
func (p *pace) unknown(now, last, since Micros) tally {
	t := tally{pace: *p, since: since}
	if last > 0 && p.clear(last) > now {
		t.tat = p.after(last)
	}
	return t
}

// carry changes the tally to another pace. No call granted so far arrives after arrived.
//
// It uses floating point because the product of two intervals and a debt is not exact in Lua. A microsecond at either
// end covers the rounding.
func (t *tally) carry(now, arrived Micros, to pace) {
	from, end := t.pace, t.end()+t.late
	last := min(arrived, max(t.since, end-Micros(from.interval.P/from.interval.Q))) // every call owes at least one unit
	known := t.since == 0 || to.window > 0 && t.since+to.window <= now
	ratio := to.interval.micros() / from.interval.micros()
	since, tat := coarse(arrived), maxMicros
	switch {
	case !known || ratio > 1 && to.window == 0:
	case ratio > 1:
		tat = now - to.window + saturated(float64(max(0, end-now+to.window-to.late)+1)*ratio)
	default:
		edge := max(last, now+from.late) // later than it must be: until now the bucket drained at the former interval
		since, tat = t.since, edge+saturated(float64(end-edge+1)*ratio)
		if to.window > 0 {
			tat -= to.late
		}
	}
	if most := to.after(last); tat >= most {
		since, tat = coarse(arrived), most
	}
	*t = tally{gcra: gcra{tat: max(0, tat)}, pace: to, since: since}
}

// saturated returns x rounded up, plus one, at most maxMicros.
func saturated(x float64) Micros { return Micros(min(float64(maxMicros), ceil(x)+1)) }

// coarse rounds up to a multiple of coarseTo, which is about a second. All buckets that change to a pace within that
// time share one entry in the table of paces.
func coarse(t Micros) Micros { return Micros(ceilDiv(int64(t), coarseTo)) * coarseTo }

const coarseTo = 1 << 20

// turning records how the paces of a store's keys have changed, and which calls the store may therefore have forgotten.
// The rules decide how long a key with an empty bucket is remembered. In Redis these are the rules under which the key
// was called. The zero value has forgotten nothing.
type turning struct {
	memory    Micros // how long a key is remembered now
	least     Micros // the shortest memory of a key whose last call arrived after forgotten, until latest
	forgotten Micros // a key whose last call arrived by then may have been forgotten, however long ago that is
	latest    Micros // when the last call that was granted under former paces arrives
	former    []Former
}

// Former are the rules by which former processes made calls, until a time.
type Former struct {
	Rules Rules
	Until Micros
}

// Former sets the rules by which former processes made calls. If a key had another rate under these rules, its calls
// are unknown: it may have been called until the rules ended. Former must be called after Restore and before the first
// Reserve.
func (m *Memory) Former(former []Former) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	now := e.tick(m.now())
	for _, f := range former {
		f.Until = min(f.Until, now) + Micros(ceilMicros(f.Rules.Jitter))
		e.arrived = max(e.arrived, f.Until)
		if f.Rules.KeyPaces() == e.rules.KeyPaces() {
			continue
		}
		e.turning.latest = max(e.turning.latest, coarse(f.Until))
		if f.Until+e.turning.memory > now {
			e.turning.former = append(e.turning.former, f)
		}
	}
}

// lastCall returns the latest time at which a call of a forgotten key can have arrived. A key is remembered for memory
// after its last call. If that call arrived by latest, the key may have been remembered only for least. If it arrived
// by forgotten, the key may have been forgotten at any time.
func (t *turning) lastCall(now Micros) Micros {
	return max(now-t.memory, t.forgotten, min(t.latest, now-t.least))
}

// lastCallBefore returns the latest time at which a former process can have called the key under another pace, or 0.
func (t *turning) lastCallBefore(key string, now Micros, own *pace) (last Micros) {
	for i := range t.former {
		if f := &t.former[i]; f.Until > last && own.clear(f.Until) > now && f.Rules.pace(f.Rules.For(key).Rate) != *own {
			last = f.Until
		}
	}
	return last
}

// turn notes that keys have other rates from now on, and that every key must be remembered for memory.
func (t *turning) turn(now, arrived, memory Micros) {
	if now-t.least >= t.latest {
		t.forgotten, t.least = t.latest, t.memory
	}
	t.least = min(t.least, t.memory)
	// Every key that is forgotten by now was empty before latest: memory and Redis then treat it alike.
	t.memory, t.latest = memory, coarse(max(now, arrived))
}

// open converts a key's state to its present pace. It treats every key that may be forgotten as forgotten, so that
// every store gives the same slots.
func (t *turning) open(name string, key *keyState, now, arrived Micros, own pace) {
	called := t.lastCall(now)
	switch {
	case key.pace == (pace{}) || key.end()+key.late <= called:
		last := min(called, arrived, t.latest) // under another pace; what its own has forgotten was idle
		key.tally = own.unknown(now, max(last, t.lastCallBefore(name, now, &own)), t.latest)
	case key.pace == own:
		return
	default:
		key.carry(now, arrived, own)
		t.latest = max(t.latest, coarse(arrived)) // an ask may still use the former rules
	}
	key.last = 0
}

// KeyPaces returns a hash of the rates of all keys and of everything that decides their paces. If two hashes are equal,
// every key has the same pace under both rules.
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
