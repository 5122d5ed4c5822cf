package recorder

// list is a linked list of slots. The links are the slots' numbers.
type list struct {
	first, last, none uint32
	size              int
}

func (l *list) push(slots []slot, n uint32) {
	slots[n].parked, slots[n].prev, slots[n].next = true, l.last, l.none
	if l.size == 0 {
		l.first = n
	} else {
		slots[l.last].next = n
	}
	l.last = n
	l.size++
}

func (l *list) remove(slots []slot, n uint32) {
	s := &slots[n]
	if s.prev == l.none {
		l.first = s.next
	} else {
		slots[s.prev].next = s.next
	}
	if s.next == l.none {
		l.last = s.prev
	} else {
		slots[s.next].prev = s.prev
	}
	s.parked, s.prev, s.next = false, l.none, l.none
	l.size--
}
