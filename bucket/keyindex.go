package bucket

// keyIndex finds a key's place by its hash: 8 bytes an entry, so that what a look-up waits for is one line of memory.
//
// It is open addressing with linear probing, in indexParts parts that grow each for itself: what one call may have to
// move is a part, and at a million keys that is some microseconds. Removing moves the entries behind up, so there are no
// graves and a look-up ends at the first empty place.
type keyIndex struct {
	parts [indexParts]indexPart
}

const (
	indexParts = 256
	leastPart  = 8 // entries
)

type indexPart struct {
	entries []indexEntry // a power of two; at most three quarters are in use
	used    uint32
}

// indexEntry is a place, counted from 1, with the part of its key's hash that says where it is looked for.
type indexEntry struct{ tag, place uint32 }

// part and tag of a hash: bits that have nothing to do with each other.
func (x *keyIndex) part(hash uint64) (p *indexPart, tag uint32) {
	return &x.parts[hash>>56], uint32(hash)
}

// find looks for a place with this hash that is the right one.
func (x *keyIndex) find(hash uint64, right func(place uint32) bool) (place uint32, ok bool) {
	p, tag := x.part(hash)
	if p.used == 0 {
		return 0, false
	}
	for i := p.home(tag); ; i = p.after(i) {
		e := p.entries[i]
		if e.place == 0 {
			return 0, false
		}
		if e.tag == tag && right(e.place-1) {
			return e.place - 1, true
		}
	}
}

// put adds a place that is not there yet.
func (x *keyIndex) put(hash uint64, place uint32) {
	p, tag := x.part(hash)
	if int(p.used+1)*4 > len(p.entries)*3 {
		p.resize(max(leastPart, 2*len(p.entries)))
	}
	p.add(indexEntry{tag, place + 1})
	p.used++
}

// move says that what was at one place is at another now.
func (x *keyIndex) move(hash uint64, from, to uint32) {
	p, tag := x.part(hash)
	p.entries[p.seek(tag, from)].place = to + 1
}

// remove takes out a place that is there.
func (x *keyIndex) remove(hash uint64, place uint32) {
	p, tag := x.part(hash)
	hole := p.seek(tag, place)
	for i := p.after(hole); p.entries[i].place != 0; i = p.after(i) {
		// What is looked for at or before the hole would not be found behind it.
		if p.distance(p.home(p.entries[i].tag), i) >= p.distance(hole, i) {
			p.entries[hole] = p.entries[i]
			hole = i
		}
	}
	p.entries[hole] = indexEntry{}
	p.used--
	if len(p.entries) > leastPart && int(p.used)*8 < len(p.entries) {
		p.resize(len(p.entries) / 2)
	}
}

func (p *indexPart) home(tag uint32) uint32 { return tag & uint32(len(p.entries)-1) }

func (p *indexPart) after(i uint32) uint32 { return (i + 1) & uint32(len(p.entries)-1) }

// distance is how many steps lead from one entry to another.
func (p *indexPart) distance(from, to uint32) uint32 { return (to - from) & uint32(len(p.entries)-1) }

// seek finds the entry of a place that is there.
func (p *indexPart) seek(tag, place uint32) uint32 {
	i := p.home(tag)
	for p.entries[i].place != place+1 {
		i = p.after(i)
	}
	return i
}

func (p *indexPart) add(e indexEntry) {
	i := p.home(e.tag)
	for p.entries[i].place != 0 {
		i = p.after(i)
	}
	p.entries[i] = e
}

func (p *indexPart) resize(n int) {
	old := p.entries
	p.entries = make([]indexEntry, n)
	for _, e := range old {
		if e.place != 0 {
			p.add(e)
		}
	}
}
