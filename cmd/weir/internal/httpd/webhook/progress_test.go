package webhook

import (
	"slices"
	"testing"
	"time"
)

// TestProgressOfSingleMessages checks that a later sender continues after the newest message that was read, and with
// the messages that are under way. So a message that fails for days neither blocks the others nor makes them be posted
// again.
func TestProgressOfSingleMessages(t *testing.T) {
	t.Parallel()
	var p progress
	at := func(seq uint64) time.Time { return time.Time{}.Add(time.Duration(seq) * time.Second) }
	check := func(when string, wantSeq uint64, want ...uint64) {
		t.Helper()
		var marks []underWay
		for _, seq := range want {
			marks = append(marks, underWay{seq, at(seq)})
		}
		if seq, open := p.place(true); seq != wantSeq || !slices.Equal(open, marks) || p.waiting() != uint64(len(want)) {
			t.Errorf("%s: behind %d with %v, of %d that wait", when, seq, open, p.waiting())
		}
	}
	check("at the beginning", 0)
	for _, seq := range []uint64{3, 7, 8, 20} { // the sequences between are of other feeds
		p.take(seq, at(seq), collected{held: true, begins: true})
	}
	p.take(21, at(21), collected{}) // not to be posted
	check("with all under way", 21, 3, 7, 8, 20)
	p.end(8)
	p.end(20)
	check("with two accepted", 21, 3, 7)
	if p.oldestAt() != at(3) {
		t.Errorf("the oldest is from %s", p.oldestAt())
	}
	for seq := uint64(22); seq < 1000; seq++ {
		p.take(seq, at(seq), collected{held: true, begins: true})
		p.end(seq)
	}
	check("with one that fails, and many that do not", 999, 3, 7)
	p.end(3)
	p.end(7)
	check("with none under way", 999)
	if !p.oldestAt().IsZero() {
		t.Errorf("the oldest of none is from %s", p.oldestAt())
	}
}

// TestProgressOfWindows checks that a later sender reads a window that was not accepted again from its first event.
func TestProgressOfWindows(t *testing.T) {
	t.Parallel()
	var p progress
	check := func(when string, want, waiting uint64) {
		t.Helper()
		if seq, open := p.place(false); seq != want || open != nil || p.waiting() != waiting {
			t.Errorf("%s: behind %d with %v, and %d wait", when, seq, open, p.waiting())
		}
	}
	p.take(4, time.Time{}, collected{})
	check("behind an event that the destination does not want", 4, 0)
	p.take(5, time.Time{}, collected{held: true, begins: true})
	p.take(6, time.Time{}, collected{})
	p.take(7, time.Time{}, collected{held: true})
	check("in a window", 4, 2)
	p.end(p.newest())
	check("behind the window", 7, 0)
}

// TestBacklogTellsLosses checks that counted messages that are neither read nor stored any more are lost. Later
// messages are not counted, and a gap in the sequences is no loss.
func TestBacklogTellsLosses(t *testing.T) {
	t.Parallel()
	var b backlog
	b.take(10, 7)
	if b.unread != 7 || b.missing(0) != 0 {
		t.Errorf("%d wait, and %d of an unknown number are missing", b.unread, b.missing(0))
	}
	b.counted(7, 100)
	b.take(40, 900) // one of them, after a gap; it was delivered when more messages waited
	if b.unread != 6 {
		t.Errorf("%d wait of 7, and one was read", b.unread)
	}
	if n := b.missing(6); n != 0 {
		t.Errorf("%d of 6 are missing, and 6 are there", n)
	}
	if n := b.missing(2); n != 4 {
		t.Errorf("%d of 6 are missing, and 2 are there", n)
	}
	if n := b.take(101, 5); n != 6 { // it came after the count
		t.Errorf("%d of 6 are lost, and a later one was read", n)
	}
	if n := b.missing(6); n != 0 {
		t.Errorf("%d are missing after a later one was read", n)
	}
	b.counted(5, 200)
	if n := b.missing(9); n != 0 {
		t.Errorf("%d are missing of more than were counted", n)
	}
	b.estimated(5)
	if n := b.take(201, 0); n != 0 {
		t.Errorf("%d are lost of an estimated number", n)
	}
}
