package bucket

import "hash/maphash"

// keyState is one key's own bucket while a call works on it.
type keyState struct {
	tally
	last int64 // serial of the last grant that was not given back, 0 if it is not known
}

// keptKey is a key's bucket as the table stores it, in 32 bytes. It has the key's hash and not the key's name. Two keys
// with one hash would share a bucket and get fewer calls, never more. Among a million keys that happens with a chance
// of 3 in 100 million.
type keptKey struct {
	hash uint64
	tat  Micros
	last int64
	rem  uint32 // below maxQ
	pace uint32 // number of its keptPace in the paceTable
}

// keyTable holds the buckets of all keys that are in debt. It also keeps buckets that became empty lately, because a
// changed rate needs them (carry.go). A key that is not in the table is idle.
//
// There is no timer and no sweep. Every open moves a hand on by two places and forgets the keys there if they are idle.
// So the table can lose keys faster than it gains them, and no call pays for more than two. Buckets lie in blocks that
// never move, so growing copies none.
//
// Measured (BenchmarkKeys, two noisy cores): 70 bytes a key at a million keys, index included. A reservation takes
// about 200 ns at a thousand keys and 1,100 ns at a million; the difference is cache misses, and is 0.5 % of a call. A
// hand-written index would save 13 of the 70 bytes and half of the cache misses. The index does not shrink while it has
// keys.
type keyTable struct {
	seed   maphash.Seed      // drawn with the index: a producer that chooses names cannot make two collide
	index  map[uint64]uint32 // places by hash
	blocks [][]keptKey
	paces  paceTable
	n      uint32
	hand   uint32
}

const (
	blockBits = 10
	blockSize = 1 << blockBits
)

func (t *keyTable) at(i uint32) *keptKey {
	return &t.blocks[i>>blockBits][i&(blockSize-1)]
}

// look returns a key's hash and its place. ok is false if there is none.
func (t *keyTable) look(key string) (hash uint64, place uint32, ok bool) {
	if t.index == nil {
		t.seed, t.index = maphash.MakeSeed(), map[uint64]uint32{}
	}
	hash = maphash.String(t.seed, key)
	place, ok = t.index[hash]
	return hash, place, ok
}

// find returns the state of key if there is one.
func (t *keyTable) find(key string) (s keyState, ok bool) {
	_, i, ok := t.look(key)
	if !ok {
		return keyState{}, false
	}
	return t.unpack(t.at(i)), true
}

// open returns the state of a key, and the place at which store must put it back. An unknown key has an idle state. The
// place is valid until the next open. A key is kept for memory after it became idle.
func (t *keyTable) open(key string, now, memory Micros) (s keyState, place uint32) {
	t.evict(now - memory)
	t.evict(now - memory)
	hash, i, ok := t.look(key)
	if ok {
		return t.unpack(t.at(i)), i
	}
	if int(t.n>>blockBits) == len(t.blocks) {
		t.blocks = append(t.blocks, make([]keptKey, blockSize))
	}
	i = t.n
	t.n++
	t.index[hash] = i
	*t.at(i) = keptKey{hash: hash}
	return keyState{}, i
}

// store puts a state back where it was opened.
func (t *keyTable) store(place uint32, s *keyState) {
	k := t.at(place)
	k.tat, k.rem, k.last = s.tat, uint32(s.rem), s.last
	if now := (keptPace{s.pace, s.since}); t.paces.of(k.pace) != now {
		t.paces.drop(k.pace)
		k.pace = t.paces.take(now)
	}
}

// update changes the state of a key that is known.
func (t *keyTable) update(key string, do func(*keyState)) {
	_, i, ok := t.look(key)
	if !ok {
		return
	}
	s := t.unpack(t.at(i))
	do(&s)
	t.store(i, &s)
}

func (t *keyTable) unpack(k *keptKey) keyState {
	kept := t.paces.of(k.pace)
	return keyState{tally{gcra{k.tat, int64(k.rem)}, kept.pace, kept.since}, k.last}
}

// evict looks at the key under the hand. It forgets the key if, by the time at, the bucket was idle and the key's last
// call had arrived. The table's last key moves to the free place.
func (t *keyTable) evict(at Micros) {
	if t.n == 0 {
		return
	}
	if t.hand >= t.n {
		t.hand = 0
	}
	k := t.at(t.hand)
	if s := t.unpack(k); !s.idle(at - s.late) {
		t.hand++
		return
	}
	delete(t.index, k.hash)
	t.paces.drop(k.pace)
	t.n--
	if last := t.at(t.n); last != k {
		*k = *last
		t.index[k.hash] = t.hand
	}
	*t.at(t.n) = keptKey{}
	if blocks := int(t.n>>blockBits) + 2; blocks < len(t.blocks) {
		t.blocks[len(t.blocks)-1] = nil // one spare block stays, so that a table at a block's edge does not thrash
		t.blocks = t.blocks[:len(t.blocks)-1]
	}
}

// keptPace is the part of a tally that many keys have in common.
type keptPace struct {
	pace
	since Micros
}

// paceTable numbers the paces in which keys' debts are counted. It has one entry for each different rate. For a while
// after a change of rates, it also has one for each second in which keys changed to a pace. Number 0 is no pace.
type paceTable struct {
	numbers map[keptPace]uint32
	uses    []paceUse // by number-1
	free    []uint32
}

type paceUse struct {
	keptPace
	keys int
}

func (t *paceTable) of(number uint32) keptPace {
	if number == 0 {
		return keptPace{}
	}
	return t.uses[number-1].keptPace
}

// take counts one more key under a pace and returns its number.
func (t *paceTable) take(of keptPace) uint32 {
	if of == (keptPace{}) {
		return 0
	}
	number, ok := t.numbers[of]
	if !ok {
		if t.numbers == nil {
			t.numbers = map[keptPace]uint32{}
		}
		if last := len(t.free) - 1; last >= 0 {
			number, t.free = t.free[last], t.free[:last]
		} else {
			t.uses = append(t.uses, paceUse{})
			number = uint32(len(t.uses))
		}
		t.uses[number-1] = paceUse{keptPace: of}
		t.numbers[of] = number
	}
	t.uses[number-1].keys++
	return number
}

// drop counts one key less. It forgets a pace without keys.
func (t *paceTable) drop(number uint32) {
	if number == 0 {
		return
	}
	use := &t.uses[number-1]
	if use.keys--; use.keys == 0 {
		delete(t.numbers, use.keptPace)
		t.free = append(t.free, number)
	}
}
