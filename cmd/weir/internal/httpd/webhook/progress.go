package webhook

import (
	"slices"
	"time"
)

// progress is how far a sender has come: which messages it has read, and which loads of them are neither accepted nor
// given up.
type progress struct {
	taken uint64 // the newest message that was read
	open  []mark // loads that are open, in the order of their first messages
}

// mark is a load that is being collected or posted.
type mark struct {
	first uint64
	at    time.Time // when its first message was stored
	count int       // messages of the load
}

// take records that a message was read, and what collect did with it.
func (p *progress) take(seq uint64, stored time.Time, c collected) {
	p.taken = seq
	switch {
	case c.begins:
		p.open = append(p.open, mark{seq, stored, 1})
	case c.held:
		p.open[len(p.open)-1].count++
	}
}

// newest returns the first message of the load that was begun last.
func (p *progress) newest() uint64 { return p.open[len(p.open)-1].first }

// end records that a load was accepted or given up.
func (p *progress) end(first uint64) {
	p.open = slices.DeleteFunc(p.open, func(m mark) bool { return m.first == first })
}

// waiting returns the number of messages that were read and are neither accepted nor given up.
func (p *progress) waiting() (n uint64) {
	for _, m := range p.open {
		n += uint64(max(0, m.count))
	}
	return n
}

// oldestAt returns when the first message of the oldest open load was stored. It returns zero if no load is open.
func (p *progress) oldestAt() time.Time {
	if len(p.open) == 0 {
		return time.Time{}
	}
	return p.open[0].at
}

// underWay is a message that a position lists because it is neither accepted nor given up.
type underWay struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"` // when it was stored
}

// place returns where a later sender continues: after seq, and with the messages at or before seq that are still open.
// If resumes is false, the feed cannot resume single messages. A later sender must then read again from the oldest open
// load.
func (p *progress) place(resumes bool) (seq uint64, open []underWay) {
	if len(p.open) == 0 {
		return p.taken, nil
	}
	if !resumes {
		return p.open[0].first - 1, nil
	}
	for _, m := range p.open {
		open = append(open, underWay{m.first, m.at.UTC().Truncate(time.Second)})
	}
	return p.taken, open
}

// backlog counts the messages of a feed that wait to be read.
type backlog struct {
	unread uint64 // the best known number
	sure   uint64 // at the last count: a lower bound of the messages after the newest message read and up to upTo
	upTo   uint64
	gone   uint64 // unread messages up to this sequence were already counted as removed
}

// take records that a message was read. pending is the number of messages that the server had after it when it
// delivered the message. While the sender reads nothing, delivered messages wait in memory, so a later count is more
// recent than pending. take returns how many counted messages are gone: messages are read in order, so a message after
// upTo means that all unread messages up to upTo were removed.
func (b *backlog) take(seq, pending uint64) (lost uint64) {
	if seq > b.upTo {
		lost, b.sure, b.unread = b.sure, 0, pending
		return lost
	}
	b.unread -= min(1, b.unread)
	b.sure -= min(1, b.sure)
	return 0
}

// counted records an exact count of the unread messages up to a sequence.
func (b *backlog) counted(n, upTo uint64) { b.unread, b.sure, b.upTo = n, n, upTo }

// estimated records an upper bound of the number of unread messages.
func (b *backlog) estimated(n uint64) { b.unread, b.sure, b.upTo = n, 0, 0 }

// missing returns how many counted messages were removed unread, if present unread messages are left up to upTo. Gaps
// in the sequences do not show removals, because other feeds use the same stream.
func (b *backlog) missing(present uint64) uint64 { return b.sure - min(b.sure, present) }
