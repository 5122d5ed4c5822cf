package bucket

import "sort"

// permits are the calls under way. Every grant of an api with shared limits holds one from its reservation until it is
// settled or its lease runs out. All in-flight limits of the api count the same permits. permits also remembers which
// grants are still open, so that settling one twice changes nothing the second time.
//
// Leases end in the order of grants: a grant for a late slot makes the following ones at least as long. So the list is
// sorted by serial and by end, finding is a binary search, and expiry looks at the front only. It holds at most the
// calls granted within one lease, and is packed when more than half of it is settled.
//
// A held permit belongs to an operation that goes on after its call. It has a negative serial, which its holder
// chooses, and an end of its own.
type permits struct {
	list   []permit
	done   int    // settled ones still in the list
	latest Micros // the last lease's end
	held   map[holder]Micros
	over   Micros // when the first held permit ends, or earlier
}

// holder is an operation that holds a permit. Operations of different apis may have the same serial.
type holder struct {
	api    string
	serial int64
}

type permit struct {
	serial int64 // 0: settled
	number int64
	end    Micros
}

// open returns the number of calls under way.
func (p *permits) open() int64 { return int64(len(p.list) - p.done + len(p.held)) }

// hold opens a permit under a serial of the holder's choice, or gives an open one another end.
func (p *permits) hold(api string, serial int64, end Micros) {
	if p.held == nil {
		p.held = map[holder]Micros{}
	}
	if len(p.held) == 0 || end < p.over {
		p.over = end
	}
	p.held[holder{api, serial}] = end
}

// take opens a permit for a grant. Serials must rise.
func (p *permits) take(serial int64, end Micros) {
	p.latest = max(p.latest, end)
	p.list = append(p.list, permit{serial: serial, number: serial, end: p.latest})
}

// settle closes the permit of a grant, and reports whether it was open.
func (p *permits) settle(api string, serial int64) settled {
	of := holder{api, serial}
	if _, held := p.held[of]; held {
		delete(p.held, of)
		return wasOpen
	}
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].number >= serial })
	if serial <= 0 || i == len(p.list) || p.list[i].serial != serial {
		return notOpen
	}
	p.list[i].serial = 0
	p.done++
	if p.done > len(p.list)/2 && p.done > 32 {
		p.pack()
	}
	return wasOpen
}

// settled says in which state a settlement found its grant.
type settled int

const (
	notOpen settled = iota // settled before, its lease ran out, or never known
	wasOpen
)

// expire closes every permit whose lease has ended.
func (p *permits) expire(now Micros) {
	i := 0
	for i < len(p.list) && (p.list[i].serial == 0 || p.list[i].end <= now) {
		if p.list[i].serial == 0 {
			p.done--
		}
		i++
	}
	p.list = p.list[i:]
	if len(p.held) == 0 || now < p.over {
		return
	}
	p.over = maxMicros
	for of, end := range p.held {
		if end <= now {
			delete(p.held, of)
		} else {
			p.over = min(p.over, end)
		}
	}
}

// pack drops the settled ones, in place.
func (p *permits) pack() {
	kept := p.list[:0]
	for _, k := range p.list {
		if k.serial != 0 {
			kept = append(kept, k)
		}
	}
	p.list, p.done = kept, 0
}
