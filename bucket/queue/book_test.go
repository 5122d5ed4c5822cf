package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
	"weir/bucket"
	"weir/bucket/stream"
	"weir/ingest"
)

func TestBook(t *testing.T) {
	b := newBook()
	if b.depth("k") != 0 || b.position("k", 7) != 1 {
		t.Errorf("an unknown key has depth %d, its next place is %d", b.depth("k"), b.position("k", 7))
	}
	first, second, third := b.enter("k"), b.enter("k"), b.enter("k")
	if b.position("k", first) != 1 || b.position("k", third) != 3 || b.depth("k") != 3 {
		t.Errorf("places %d and %d of depth %d", b.position("k", first), b.position("k", third), b.depth("k"))
	}
	b.leave("k")
	if b.position("k", second) != 1 || b.position("k", first) != 1 {
		t.Errorf("the second is at %d when the first has left", b.position("k", second))
	}
	b.leave("k")
	b.leave("k")
	b.leave("k") // more often than it entered
	if b.depth("k") != 0 || len(b.keys) != 0 {
		t.Errorf("depth %d, and %d keys without jobs take room", b.depth("k"), len(b.keys))
	}
}

// desk is a partition without a stream: the test decides what the stream answers and when the reader reads it.
type desk struct {
	p        *Partition
	open     []*pendingPut
	nextSeq  uint64
	inStream map[uint64]string // sequence to message id, not finished
	unread   []uint64
	read     []uint64 // not finished
	ids      map[string]uint64
}

func newDesk() *desk {
	q := &Queue{holdings: NewHoldings(1 << 30), api: "credit"}
	p := &Partition{queue: q, source: source{api: q.api}, contents: newContents(q.holdings, func() uint64 { return 0 })}
	p.intake = newIntake(p, nil)
	p.sweeper = &sweeper{source: &p.source, contents: p.contents, wake: make(chan struct{}, 1)}
	p.contents.begin()
	return &desk{p: p, inStream: map[uint64]string{}, ids: map[string]uint64{}}
}

func (d *desk) put(id string, earlyRefusal *ingest.Refusal) {
	d.p.intake.put(&ingest.Job{API: "credit", Key: "k", ID: id, DedupeID: id}, bucket.KeyLimits{Capacity: 1 << 30}, earlyRefusal, func(ingest.Receipt, *ingest.Refusal) {})
	d.open = append(d.open, d.p.intake.waiting...)
	d.p.intake.waiting = nil
}

// store decides what the stream does with a message that is on its way.
func (d *desk) store(e *pendingPut) stream.Answer {
	id := e.msg.Header.Get(ingest.HeaderMsgID)
	if seq, known := d.ids[id]; known {
		return stream.Answer{Seq: seq, Duplicate: true}
	}
	if e.earlyRefusal != nil {
		return stream.Answer{Err: stream.ErrNotKnown}
	}
	d.nextSeq++
	d.ids[id], d.inStream[d.nextSeq] = d.nextSeq, id
	d.unread = append(d.unread, d.nextSeq)
	return stream.Answer{Seq: d.nextSeq}
}

func (d *desk) settle(e *pendingPut) { d.p.contents.settle(e.job, e.ticket, e.answer) }

func (d *desk) readOne() {
	seq := d.unread[0]
	d.unread = d.unread[1:]
	d.p.contents.read(Entry{Kind: JobEntry, Seq: seq, Key: "k", Header: nats.Header{ingest.HeaderMsgID: {d.inStream[seq]}}})
	d.read = append(d.read, seq)
}

func (d *desk) finish(i int) {
	seq := d.read[i]
	d.read = append(d.read[:i], d.read[i+1:]...)
	d.p.Finish("k", seq)
	d.p.contents.gone([]uint64{seq})
	delete(d.inStream, seq)
}

// TestBookCountsOnce checks that in the end the book counts what the stream holds, whatever the order in which jobs are
// stored, read back, answered, refused, sent twice and finished, and in which answers are lost.
func TestBookCountsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk()
		var sent []*pendingPut // their answers are on the way back
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				var earlyRefusal *ingest.Refusal
				if rapid.IntRange(0, 3).Draw(t, "foregone") == 0 {
					earlyRefusal = &ingest.Refusal{Code: ingest.Throttled}
				}
				d.put(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id")), earlyRefusal)
			},
			"stream": func(t *rapid.T) {
				if len(d.open) == 0 {
					t.Skip()
				}
				e := d.open[0] // in the order they came
				d.open = d.open[1:]
				answer := stream.Answer{Err: stream.ErrFull}
				switch rapid.IntRange(0, 4).Draw(t, "answer") {
				case 0:
				case 1: // stored, and the answer lost
					d.store(e)
					answer = stream.Answer{Err: stream.ErrUnanswered}
				default:
					answer = d.store(e)
				}
				e.answer = answer
				sent = append(sent, e)
			},
			"answer": func(t *rapid.T) {
				if len(sent) == 0 {
					t.Skip()
				}
				d.settle(sent[0])
				sent = sent[1:]
			},
			"read": func(t *rapid.T) {
				if len(d.unread) == 0 {
					t.Skip()
				}
				d.readOne()
			},
			"finish": func(t *rapid.T) {
				if len(d.read) == 0 {
					t.Skip()
				}
				d.finish(rapid.IntRange(0, len(d.read)-1).Draw(t, "which"))
			},
			"read again": func(*rapid.T) { // the partition is given up, and taken over again
				d.p.contents.end()
				d.p.contents.begin()
				d.read, d.unread = nil, slices.Sorted(maps.Keys(d.inStream))
			},
			"forget": func(t *rapid.T) { // the dedupe window passes
				for id, seq := range d.ids {
					if _, waits := d.inStream[seq]; !waits && d.p.contents.book.pending[id] == nil {
						delete(d.ids, id)
					}
				}
			},
			"": func(t *rapid.T) {
				if depth := d.p.contents.book.depth("k"); depth < 0 || depth > len(d.inStream)+len(d.open)+len(sent) {
					t.Fatalf("the book counts %d, %d are in the stream and %d on their way", depth, len(d.inStream), len(d.open)+len(sent))
				}
			},
		})
		for _, e := range d.open {
			e.answer = stream.Answer{Err: stream.ErrStopping}
		}
		for _, e := range append(sent, d.open...) {
			d.settle(e)
		}
		for len(d.unread) > 0 {
			d.readOne()
		}
		if depth := d.p.contents.book.depth("k"); depth != len(d.inStream) {
			t.Fatalf("the book counts %d, the stream holds %d", depth, len(d.inStream))
		}
		if len(d.p.contents.book.pending) != 0 || len(d.p.contents.book.own) != 0 {
			t.Fatalf("%d ids and %d sequences are kept for nothing", len(d.p.contents.book.pending), len(d.p.contents.book.own))
		}
	})
}

// TestRefusalsHoldNoAddress checks that a refusal does not contain the server's address, whatever broke the connection.
func TestRefusalsHoldNoAddress(t *testing.T) {
	in := &intake{source: &source{name: "WEIR_pay_0"}}
	broken := fmt.Errorf("%w: %w", stream.ErrUnsent, errors.New("write tcp 10.0.0.7:51022->10.0.0.8:4222: broken pipe"))
	r := in.refusal(&pendingPut{answer: stream.Answer{Err: broken}})
	if r.Code != ingest.Unavailable || !strings.Contains(r.Description, "WEIR_pay_0") || strings.Contains(r.Description, "10.0.0") {
		t.Errorf("%d: %s", r.Code, r.Description)
	}
}
