package bucket

// keyState is one key's own bucket: 56 bytes, the key's characters and the index entry not counted.
type keyState struct {
	key string
	gcra
	interval Interval // the one the debt was counted in
	last     int64    // serial of the last grant, 0 if it cannot be given back
}

// keyTable holds the buckets of all keys that are in debt, and for a while of some that are not any more. A key that is
// not in it is idle.
//
// There is no timer and no sweep: every look-up moves a hand on by two places and forgets the keys it finds there idle,
// so the table loses keys faster than it can gain them, and no call pays for more than two. The states lie in blocks that
// never move: growing copies nothing.
type keyTable struct {
	index  map[string]uint32
	blocks [][]keyState
	n      uint32
	hand   uint32
}

const (
	blockBits = 10
	blockSize = 1 << blockBits
)

func (t *keyTable) at(i uint32) *keyState {
	return &t.blocks[i>>blockBits][i&(blockSize-1)]
}

// get returns the state of key, which is added idle when it is not known. The pointer is good until the next get.
func (t *keyTable) get(key string, now Micros) *keyState {
	t.evict(now)
	t.evict(now)
	if i, ok := t.index[key]; ok {
		return t.at(i)
	}
	if t.index == nil {
		t.index = map[string]uint32{}
	}
	if int(t.n>>blockBits) == len(t.blocks) {
		t.blocks = append(t.blocks, make([]keyState, blockSize))
	}
	i := t.n
	t.n++
	t.index[key] = i
	s := t.at(i)
	*s = keyState{key: key}
	return s
}

// find returns the state of key if there is one.
func (t *keyTable) find(key string) (*keyState, bool) {
	i, ok := t.index[key]
	if !ok {
		return nil, false
	}
	return t.at(i), true
}

// evict looks at the key under the hand and forgets it if it is idle; the last key takes its place.
func (t *keyTable) evict(now Micros) {
	if t.n == 0 {
		return
	}
	if t.hand >= t.n {
		t.hand = 0
	}
	s := t.at(t.hand)
	if !s.idle(now) {
		t.hand++
		return
	}
	delete(t.index, s.key)
	t.n--
	if last := t.at(t.n); last != s {
		*s = *last
		t.index[s.key] = t.hand
	}
	*t.at(t.n) = keyState{}
	if blocks := int(t.n>>blockBits) + 2; blocks < len(t.blocks) {
		t.blocks[len(t.blocks)-1] = nil // one spare block stays, so that a table at a block's edge does not thrash
		t.blocks = t.blocks[:len(t.blocks)-1]
	}
}
