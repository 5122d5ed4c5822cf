package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// contents is what this process knows of the messages in a partition's stream. The intake adds the jobs that it stores,
// the reader adds the messages that it receives, and the sweeper removes the messages that it has deleted. One lock
// guards it all, because each of these steps changes several parts. contents asks nothing of the stream.
type contents struct {
	holdings *Holdings   // count the keys
	expected expectation // which messages the reader should receive; it has its own synchronization

	jobs, keys atomic.Int64 // in the book, of unfinished jobs

	mu           sync.Mutex // guards what follows
	book         *book
	messages     messages
	position     position
	appointments appointments
	born         time.Time // when the stream that is read was created; zero: unknown
	fence        uint64    // the sequence of this owner's epoch, 0 before it took over
	fenceGone    uint64    // the epoch of this owner that was reported as gone
	reading      bool      // a reader reads the stream into the book
	caughtUp     bool      // the book has every job that was there when the reading began
}

// newContents returns the contents of a stream that is not read yet. reconnects returns how often the connection was
// lost and came back.
func newContents(h *Holdings, reconnects func() uint64) *contents {
	return &contents{
		holdings: h, expected: expectation{news: make(chan struct{}, 1)}, book: newBook(), messages: newMessages(),
		position: position{reconnects: reconnects}, appointments: newAppointments(),
	}
}

// tallyLocked updates the counts that forecasts read from the book.
func (c *contents) tallyLocked() {
	c.jobs.Store(int64(max(0, c.book.jobs-len(c.messages.finished))))
	keys := int64(len(c.book.keys))
	c.holdings.keys.Add(keys - c.keys.Swap(keys))
}

// begin starts a new book for a new reading.
func (c *contents) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.born = true, time.Time{}
	c.forgetLocked()
}

// end closes the book when its reading ends.
func (c *contents) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.caughtUp = false, false
	c.forgetLocked()
}

// forgetLocked drops everything that was read from the stream, and closes the book. It also drops finished messages
// that are not deleted yet: the next owner finds their ends in the ledger.
func (c *contents) forgetLocked() {
	c.position.forget()
	c.messages.forget()
	c.appointments = newAppointments()
	c.book = newBook()
	c.tallyLocked()
	c.expected.upTo.Store(0)
}

// own notes the sequence of this owner's epoch.
func (c *contents) own(fence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fence = fence
}

// epoch returns the sequence of this owner's epoch, 0 before it took over.
func (c *contents) epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fence
}

func (c *contents) isCaughtUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caughtUp
}

func (c *contents) hasCaughtUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.caughtUp = true
}

// readTo returns the sequence up to which the stream has been read.
func (c *contents) readTo() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position.seq
}

// readUntil returns how far the stream was certainly read from the same server: see position.until.
func (c *contents) readUntil() readPosition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position.until()
}

// noteIntact notes that the losses of the connection up to number connection did not reset the stream.
func (c *contents) noteIntact(connection uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.position.noteIntact(connection)
}

// isIntact reports whether the stream is known not to have been reset since the last loss of the connection.
func (c *contents) isIntact() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position.isIntact()
}

// pass notes that the reader has received a message that weir did not write, and returns how far the stream has been
// read.
func (c *contents) pass(e Entry) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Seq > c.position.seq {
		c.position.pass(e)
	}
	return c.position.seq
}

// read counts a message that the reader has received, and reports whether it is new: a restarted reader repeats
// messages.
func (c *contents) read(e Entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Seq <= c.position.seq {
		return false
	}
	c.position.pass(e)
	if !c.messages.add(&e) {
		return false
	}
	if e.Kind == JobEntry {
		c.book.read(e.Seq, e.Key, e.Header.Get(ingest.HeaderMsgID))
		c.tallyLocked()
	}
	return true
}

// taken notes that the owner has received an appointment.
func (c *contents) taken(key string, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appointments.got(key, seq)
}

// unreadAppointments returns the key's appointments that the owner may not have read yet.
func (c *contents) unreadAppointments(key string) []Appointment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.appointments.unread[key])
}

func (c *contents) depth(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.book.depth(key)
}

// depthUnread returns how many unfinished jobs the key has, and whether the stream is read and the reader has not come
// to the sequence yet.
func (c *contents) depthUnread(seq uint64, key string) (depth int, unread bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.book.depth(key), c.reading && seq > c.position.seq
}

// issue counts a job that is about to be stored with a message id.
func (c *contents) issue(key, id string) ticket {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.book.issue(key, id)
	c.tallyLocked()
	return t
}

// places returns the positions of a group's jobs among the jobs of their keys, and whether the book has every job that
// was there when the reading began. It looks once, so that of two jobs of a key the later one has the higher position.
func (c *contents) places(group []*pendingPut) (positions []int, caughtUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	positions = make([]int, len(group))
	for i, e := range group {
		positions[i] = c.book.position(e.job.Key, e.ticket.number)
	}
	return positions, c.caughtUp
}

// settle updates the book with the stream's answer to a put, and returns the position that the job had until then.
func (c *contents) settle(j *ingest.Job, t ticket, a stream.Answer) (position int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	position = c.book.position(j.Key, t.number)
	if t.book != c.book {
		return position // it has no ticket, or a ticket of a closed book: then the reader counts the job
	}
	kept := a.Err == nil && !a.Duplicate && c.reading
	if at := notBefore(j); kept && at != 0 {
		c.appointments.store(j.Key, Appointment{a.Seq, at})
	}
	var unread uint64
	if kept && a.Seq > c.position.seq {
		unread = a.Seq
		c.expected.raise(unread)
	}
	c.book.settle(t, unread)
	c.tallyLocked()
	return position
}

// finish notes that a message may be deleted. key is "" for a marker.
func (c *contents) finish(key string, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages.finish(key, seq)
	c.tallyLocked()
}

// unswept returns the number of finished messages that are not deleted yet.
func (c *contents) unswept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.messages.finished)
}

// sweepable chooses the finished messages to delete next: see messages.next.
func (c *contents) sweepable() (upTo uint64, covered []uint64, single singles) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages.next()
}

// apart divides finished messages into jobs and markers.
func (c *contents) apart(seqs []uint64) singles {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages.apart(seqs)
}

// gone removes deleted messages.
func (c *contents) gone(seqs []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seq := range seqs {
		if key := c.messages.gone(seq, c.position.seq); key != "" {
			c.book.leave(key)
		}
	}
	c.tallyLocked()
	c.messages.compact(c.position.seq)
}

// named returns the sequences of the messages with the name of an id, at most one more than mostNamed. read is the
// sequence up to which the reader has come.
func (c *contents) named(job string) (seqs []uint64, read uint64) {
	name := nameOfID(job)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages.named(name), c.position.seq
}

// readFrom returns when the stream was created, and up to which sequence it was read. opened is when the stream that
// the partition was opened with was created.
func (c *contents) readFrom(opened time.Time) (born time.Time, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if born = c.born; born.IsZero() {
		born = opened
	}
	return born, c.position.seq
}

// isAnother notes when the present stream was created, and reports whether it is not the stream that was read until
// now.
func (c *contents) isAnother(born time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	another := !c.born.IsZero() && !born.Equal(c.born)
	c.born = born
	return another
}

// lastKnown returns the last sequence of the stream that this process knows.
func (c *contents) lastKnown() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := max(c.position.seq, c.expected.upTo.Load(), c.fence)
	for seq := range c.book.own {
		last = max(last, seq)
	}
	return last
}

// reckoning is what the stream must hold, as far as the owner knows.
type reckoning struct {
	fence  uint64
	oldest uint64 // the oldest sequence that is not finished, 0 for none
	least  int    // a lower bound of the messages that were read and are not finished
	passed uint64 // messages that were ever read
}

func (c *contents) reckon() reckoning {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.messages
	return reckoning{fence: c.fence, oldest: m.oldest(), least: m.least(), passed: m.passed}
}

// misses reports whether a stream lacks a message. state was read between before and r. So messages that the reader
// read between them do not count.
func (r reckoning) misses(before reckoning, state *jetstream.StreamState) bool {
	least := r.least - int(r.passed-before.passed)
	if before.fence > 0 && before.fence == r.fence {
		if r.fence < state.FirstSeq {
			return true
		}
		least++
	}
	return r.oldest > 0 && r.oldest < state.FirstSeq || least > 0 && state.Msgs < uint64(least)
}

// takenOut finds the messages that must be in the stream and are gone. It notes and returns each of them only once.
func (c *contents) takenOut(gone func(seq uint64) bool) (r Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Seqs = c.messages.takenOut(gone)
	for seq, key := range c.book.own {
		if seq > c.position.seq && gone(seq) {
			if r.Unread == nil {
				r.Unread = map[uint64]string{}
			}
			r.Unread[seq] = key
		}
	}
	for seq, key := range r.Unread {
		delete(c.book.own, seq)
		c.appointments.remove(key, func(one Appointment) bool { return one.Seq == seq })
		c.book.leave(key)
	}
	c.tallyLocked()
	return r
}

// loseEpoch reports whether this owner's epoch, which was fence, is gone. It reports each epoch only once.
func (c *contents) loseEpoch(fence uint64, gone func(seq uint64) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fence == 0 || c.fence != fence || c.fence == c.fenceGone || !gone(c.fence) {
		return false
	}
	c.fenceGone = c.fence
	return true
}
