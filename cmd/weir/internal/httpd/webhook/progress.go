package webhook

import (
	"slices"
	"time"
)

// progress is how far a sender has come: which messages it has read, and which of these are neither accepted nor given
// up.
type progress struct {
	taken uint64 // the newest message that was read
	open  []mark // loads, in the order of their first messages
}

// mark is a load that is collected or under way.
type mark struct {
	first uint64
	at    time.Time // when its first message was stored
	count int       // messages to post
}

// take notes a message that was read, and what became of it.
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

// end notes that a load was accepted, or was given up.
func (p *progress) end(first uint64) {
	p.open = slices.DeleteFunc(p.open, func(m mark) bool { return m.first == first })
}

// waiting returns how many messages were read that are neither accepted nor given up.
func (p *progress) waiting() (n uint64) {
	for _, m := range p.open {
		n += uint64(max(0, m.count))
	}
	return n
}

// oldestAt returns when the oldest of these was stored, zero if there is none.
func (p *progress) oldestAt() time.Time {
	if len(p.open) == 0 {
		return time.Time{}
	}
	return p.open[0].at
}

// underWay is a message that is neither accepted nor given up, as a position has it.
type underWay struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"` // when it was stored
}

// place returns where a later sender goes on: behind seq, and with the messages at or before seq that are under way. If
// the later sender cannot resume single messages, it reads the oldest of them again.
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

// backlog is how many messages wait to be read.
type backlog struct {
	unread uint64 // as far as known
	sure   uint64 // of those behind the newest message read and up to upTo, at least so many were there
	upTo   uint64
	gone   uint64 // those up to here that were not read by the last count are counted as removed
}

// take notes a message that was read, and how many the server had behind it when it delivered the message. While
// nothing is read, messages wait in memory: then a count made since says more. take returns how many of those that were
// counted are gone: messages are read in order, so those before one that came after the count are not there any more.
func (b *backlog) take(seq, pending uint64) (lost uint64) {
	if seq > b.upTo {
		lost, b.sure, b.unread = b.sure, 0, pending
		return lost
	}
	b.unread -= min(1, b.unread)
	b.sure -= min(1, b.sure)
	return 0
}

// counted notes a count of what waits to be read, up to a sequence.
func (b *backlog) counted(n, upTo uint64) { b.unread, b.sure, b.upTo = n, n, upTo }

// estimated notes how many wait to be read at most: some of them may not be there.
func (b *backlog) estimated(n uint64) { b.unread, b.sure, b.upTo = n, 0, 0 }

// missing returns how many messages are gone without having been read, if present messages are left up to upTo. A gap
// in the sequences does not show it, because other feeds use the stream too.
func (b *backlog) missing(present uint64) uint64 { return b.sure - min(b.sure, present) }
