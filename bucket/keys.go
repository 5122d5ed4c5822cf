package bucket

import "weir/bucket/internal/keyhash"

// keyState is one key's own bucket while it is looked at.
type keyState struct {
	gcra
	interval Interval // the one the debt was counted in
	last     int64    // serial of the last grant, 0 if it cannot be given back
}

// keptKey is a bucket as the table keeps it: 40 bytes. Should two keys ever share an ID, they share a bucket, and get fewer
// calls, never more.
type keptKey struct {
	id       keyhash.ID
	tat      Micros
	last     int64
	rem      uint32 // below maxQ
	interval uint32 // its number in the table of intervals
}

// keyTable holds the buckets of all keys that are in debt, and for a while of some that are not any more. A key that is
// not in it is idle.
//
// There is no timer and no sweep: every look-up moves a hand on by two places and forgets the keys it finds there idle,
// so the table loses keys faster than it can gain them, and no call pays for more than two. The buckets lie in blocks that
// never move: growing copies nothing of them.
//
// Measured (BenchmarkKeys, two noisy cores): 57 bytes a key at a million, index and all. A reservation takes about 200 ns
// at a thousand keys and 550 at a million: the difference is two waits for memory that no cache holds, one for the index
// and one for the bucket, which depends on it, and a part of a third for the name. It is 0.3 % of a call. Keeping the
// buckets in the index itself would save one of the two and cost a third more memory.
type keyTable struct {
	seeds     keyhash.Seeds
	index     keyIndex
	blocks    [][]keptKey
	intervals intervalTable
	n         uint32
	hand      uint32
}

const (
	blockBits = 10
	blockSize = 1 << blockBits
)

func (t *keyTable) at(i uint32) *keptKey {
	return &t.blocks[i>>blockBits][i&(blockSize-1)]
}

// idOf is the key's identity in this table.
func (t *keyTable) idOf(key string) keyhash.ID { return t.seeds.ID(key) }

// look finds a key's place, or ok is false.
func (t *keyTable) look(id keyhash.ID) (i uint32, ok bool) {
	return t.index.find(id.High, func(i uint32) bool { return t.at(i).id == id })
}

// find returns the state of key if there is one.
func (t *keyTable) find(key string) (s keyState, ok bool) {
	i, ok := t.look(t.idOf(key))
	if !ok {
		return keyState{}, false
	}
	return t.unpack(t.at(i)), true
}

// open returns the state of key, idle when it is not known, with its place, where store puts it back. The place is good
// until the next open.
func (t *keyTable) open(key string, now Micros) (s keyState, place uint32) {
	t.evict(now)
	t.evict(now)
	id := t.idOf(key)
	i, ok := t.look(id)
	if ok {
		return t.unpack(t.at(i)), i
	}
	if int(t.n>>blockBits) == len(t.blocks) {
		t.blocks = append(t.blocks, make([]keptKey, blockSize))
	}
	i = t.n
	t.n++
	t.index.put(id.High, i)
	*t.at(i) = keptKey{id: id}
	return keyState{}, i
}

// store puts a state back where it was opened.
func (t *keyTable) store(place uint32, s *keyState) {
	k := t.at(place)
	k.tat, k.rem, k.last = s.tat, uint32(s.rem), s.last
	if t.intervals.of(k.interval) != s.interval {
		t.intervals.drop(k.interval)
		k.interval = t.intervals.take(s.interval)
	}
}

// update changes the state of a key that is known.
func (t *keyTable) update(key string, do func(*keyState)) {
	i, ok := t.look(t.idOf(key))
	if !ok {
		return
	}
	s := t.unpack(t.at(i))
	do(&s)
	t.store(i, &s)
}

func (t *keyTable) unpack(k *keptKey) keyState {
	return keyState{gcra: gcra{k.tat, int64(k.rem)}, interval: t.intervals.of(k.interval), last: k.last}
}

// evict looks at the key under the hand and forgets it if it is idle; the last key takes its place.
func (t *keyTable) evict(now Micros) {
	if t.n == 0 {
		return
	}
	if t.hand >= t.n {
		t.hand = 0
	}
	k := t.at(t.hand)
	if !(gcra{k.tat, int64(k.rem)}).idle(now) {
		t.hand++
		return
	}
	t.index.remove(k.id.High, t.hand)
	t.intervals.drop(k.interval)
	t.n--
	if last := t.at(t.n); last != k {
		*k = *last
		t.index.move(k.id.High, t.n, t.hand)
	}
	*t.at(t.n) = keptKey{}
	if blocks := int(t.n>>blockBits) + 2; blocks < len(t.blocks) {
		t.blocks[len(t.blocks)-1] = nil // one spare block stays, so that a table at a block's edge does not thrash
		t.blocks = t.blocks[:len(t.blocks)-1]
	}
}

// intervalTable numbers the intervals that keys' debts are counted in: as many as there are different rates. Number 0 is
// no interval.
type intervalTable struct {
	numbers map[Interval]uint32
	uses    []intervalUse // by number-1
	free    []uint32
}

type intervalUse struct {
	Interval
	keys int
}

func (t *intervalTable) of(number uint32) Interval {
	if number == 0 {
		return Interval{}
	}
	return t.uses[number-1].Interval
}

// take counts one more key under an interval and returns its number.
func (t *intervalTable) take(of Interval) uint32 {
	if of == (Interval{}) {
		return 0
	}
	number, ok := t.numbers[of]
	if !ok {
		if t.numbers == nil {
			t.numbers = map[Interval]uint32{}
		}
		if last := len(t.free) - 1; last >= 0 {
			number, t.free = t.free[last], t.free[:last]
		} else {
			t.uses = append(t.uses, intervalUse{})
			number = uint32(len(t.uses))
		}
		t.uses[number-1] = intervalUse{Interval: of}
		t.numbers[of] = number
	}
	t.uses[number-1].keys++
	return number
}

// drop counts one key less; an interval of no key is forgotten.
func (t *intervalTable) drop(number uint32) {
	if number == 0 {
		return
	}
	use := &t.uses[number-1]
	if use.keys--; use.keys == 0 {
		delete(t.numbers, use.Interval)
		t.free = append(t.free, number)
	}
}
