package bucket

import "sort"

// permits are the calls under way. Every grant holds a permit from its reservation until it is settled or its lease
// runs out. Grants hold permits even if no limit counts them, because a limit may be added while a call runs. All
// in-flight limits of the api count the same permits. permits also remembers which grants are still open, so that
// settling one twice changes nothing the second time.
//
// No lease ends before the lease of an earlier grant. So the list is sorted by serial and by end: a permit is found by
// binary search, and expiry looks only at the front. The list holds at most the calls granted within one lease, and is
// packed when more than half of it is settled.
//
// A held permit belongs to an operation that goes on after its call. It has a negative serial, which its holder
// chooses, and an end of its own. In an account's permits, a held permit may also belong to a call that an api began
// before it came to the account. Such a permit has the serial of the call.
//
// Ghosts are calls of former processes that may be under way.
type permits struct {
	list   []permit
	done   int    // settled permits that are still in list
	latest Micros // the last lease's end
	held   map[holder]Micros
	over   Micros // when the first held permit ends, or earlier
	ghosts int64
	gone   Micros // when the last ghost has ended
}

// holder is an operation that holds a permit. Operations of different apis may have the same serial.
type holder struct {
	api    string
	serial int64
}

type permit struct {
	serial int64 // 0 once it is settled
	number int64
	end    Micros
}

// open returns the number of calls under way that this process began.
func (p *permits) open() int64 { return int64(len(p.list) - p.done + len(p.held)) }

// all returns the number of calls that may be under way.
func (p *permits) all(now Micros) int64 {
	if now < p.gone {
		return p.open() + p.ghosts
	}
	return p.open()
}

// haunt sets how many calls of former processes may still be under way. They count as open until gone, when the last of
// them has ended.
func (p *permits) haunt(calls int64, gone Micros) { p.ghosts, p.gone = calls, gone }

// join opens a permit for each call and operation of an api that may be under way when the api joins the account. has
// reports whether a call already has a permit there; it gets no second one.
func (p *permits) join(api string, of *permits, now Micros, has func(serial int64) bool) {
	for _, call := range of.list {
		if call.serial != 0 && call.end > now && !has(call.serial) {
			p.hold(api, call.serial, call.end)
		}
	}
	for operation, end := range of.held {
		if end > now {
			p.hold(api, operation.serial, end)
		}
	}
	if now < of.gone {
		was := p.all(now) - p.open()
		p.haunt(min(was+of.ghosts, maxCost), max(p.gone, of.gone))
	}
}

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
	if p.drop(api, serial) {
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

// drop closes a held permit, and reports whether there was one.
func (p *permits) drop(api string, serial int64) bool {
	of := holder{api, serial}
	_, held := p.held[of]
	delete(p.held, of)
	return held
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

// pack removes settled permits from the list, in place.
func (p *permits) pack() {
	kept := p.list[:0]
	for _, k := range p.list {
		if k.serial != 0 {
			kept = append(kept, k)
		}
	}
	p.list, p.done = kept, 0
}
