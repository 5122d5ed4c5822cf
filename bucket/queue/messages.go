package queue

import (
	"maps"
	"slices"

	"weir/bucket/stream"
)

// messages are the messages that were read from a stream, until they are deleted. The lock of the partition's contents
// guards them.
type messages struct {
	order    []uint64            // read and not deleted, rising
	names    []uint32            // names of the ids of the messages in order; see Partition.Find
	finished map[uint64]string   // messages to delete, with the job's key; "" for a marker
	deleted  map[uint64]struct{} // deleted, still in order
	removed  map[uint64]struct{} // deleted by hand and not finished, still in order: see Removal
	passed   uint64              // how many messages were ever added to order
}

func newMessages() messages {
	return messages{finished: map[uint64]string{}, deleted: map[uint64]struct{}{}, removed: map[uint64]struct{}{}}
}

// forget drops all messages.
func (m *messages) forget() {
	m.order, m.names = nil, nil
	clear(m.finished)
	clear(m.deleted)
	clear(m.removed)
}

// add adds a message that was just read, and reports whether it is still there: a marker may have been discarded and
// deleted before it was read back.
func (m *messages) add(e *Entry) bool {
	if _, gone := m.deleted[e.Seq]; gone {
		delete(m.deleted, e.Seq)
		return false
	}
	m.order, m.names = append(m.order, e.Seq), append(m.names, nameOf(e))
	m.passed++
	return true
}

// finish notes that a message may be deleted. key is "" for a marker.
func (m *messages) finish(key string, seq uint64) {
	m.finished[seq] = key
	delete(m.removed, seq)
}

// stands reports whether a message that was read must still be in the stream.
func (m *messages) stands(seq uint64) bool {
	_, finished := m.finished[seq]
	_, deleted := m.deleted[seq]
	_, removed := m.removed[seq]
	return !finished && !deleted && !removed
}

// oldest returns the oldest message that must be in the stream, 0 if there is none.
func (m *messages) oldest() uint64 {
	for _, seq := range m.order {
		if m.stands(seq) {
			return seq
		}
	}
	return 0
}

// least returns a lower bound of the number of messages that must be in the stream.
func (m *messages) least() int {
	return len(m.order) - len(m.finished) - len(m.deleted) - len(m.removed)
}

// takenOut notes the messages that must be in the stream and are gone, and returns them in rising order.
func (m *messages) takenOut(gone func(seq uint64) bool) (seqs []uint64) {
	for _, seq := range m.order {
		if m.stands(seq) && gone(seq) {
			m.removed[seq] = struct{}{}
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// named returns the messages with a name, at most one more than mostNamed.
func (m *messages) named(name uint32) (seqs []uint64) {
	for i, n := range m.names {
		if n != name {
			continue
		}
		if _, deleted := m.deleted[m.order[i]]; deleted {
			continue
		}
		if seqs = append(seqs, m.order[i]); len(seqs) > mostNamed {
			break
		}
	}
	return seqs
}

// singles are finished messages that are deleted one by one, in rising order.
type singles struct{ jobs, markers []uint64 }

// apart divides finished messages into jobs and markers, at most MaxExchange of each. If there are more jobs than that,
// it returns no markers, because no marker may be deleted before its job.
func (m *messages) apart(seqs []uint64) (some singles) {
	for _, seq := range seqs {
		if m.finished[seq] != "" {
			some.jobs = append(some.jobs, seq)
		} else {
			some.markers = append(some.markers, seq)
		}
	}
	if len(some.jobs) > stream.MaxExchange {
		some = singles{jobs: some.jobs[:stream.MaxExchange]}
	}
	some.markers = some.markers[:min(len(some.markers), stream.MaxExchange)]
	return some
}

// next chooses what to delete: one purge for the messages that are finished without a gap from the oldest on, and
// single deletes for the rest.
func (m *messages) next() (upTo uint64, covered []uint64, single singles) {
	front := 0
	for ; front < len(m.order); front++ {
		seq := m.order[front]
		if _, gone := m.deleted[seq]; gone {
			delete(m.deleted, seq)
			continue
		}
		if _, ok := m.finished[seq]; !ok {
			break
		}
		covered = append(covered, seq)
	}
	m.order, m.names = m.order[front:], m.names[front:]
	if len(covered) > 0 {
		upTo = covered[len(covered)-1]
	}
	if len(covered) == 1 {
		upTo, covered = 0, nil
	}
	var rest []uint64
	for seq := range m.finished {
		if seq > upTo {
			rest = append(rest, seq)
		}
	}
	slices.Sort(rest)
	return upTo, covered, m.apart(rest)
}

// gone notes that a finished message was deleted, and returns its job's key; "" for a marker, or a message that was not
// finished. The stream has been read up to readTo.
func (m *messages) gone(seq, readTo uint64) (key string) {
	key, ok := m.finished[seq]
	if !ok {
		return ""
	}
	delete(m.finished, seq)
	if seq > readTo || len(m.order) > 0 && seq >= m.order[0] {
		m.deleted[seq] = struct{}{}
	}
	return key
}

// compact takes deleted messages out of the order once they are many. The stream has been read up to readTo.
func (m *messages) compact(readTo uint64) {
	if len(m.deleted) <= 1024+len(m.order)/2 {
		return
	}
	left := 0
	for i, seq := range m.order {
		if _, gone := m.deleted[seq]; !gone {
			m.order[left], m.names[left] = seq, m.names[i]
			left++
		}
	}
	m.order, m.names = m.order[:left], m.names[:left]
	maps.DeleteFunc(m.deleted, func(seq uint64, _ struct{}) bool { return seq <= readTo })
}
