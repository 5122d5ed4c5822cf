package jobindex

import (
	"bytes"
	"math"
	"slices"
	"time"
)

// perBlock is the number of entries in a block. The index drops only whole blocks.
const perBlock = 1024

// entry is one message of a stream: the record of a call, a letter, or an event about a job.
type entry struct {
	hash     uint64 // of the job's id
	seq      uint64 // of the message
	stored   int64  // when the server stored it, in nanoseconds
	took     uint32 // milliseconds from the job's acceptance to stored, plus 1; 0: the acceptance is unknown
	ran      int32  // microseconds from the call's start to stored; unknownRun: the start is unknown
	of       uint32 // lower 32 bits of the hash of the api and the key
	text     uint32 // position of the job's id and key in the block's text
	api      uint16
	status   uint16
	calls    uint16
	id, key  uint16 // lengths
	outcome  uint16 // index in Index.names, like api
	listable bool   // the entry is the end of a job
	uncalled bool   // the entry is a record that is not of a call of its own
}

const (
	entryBytes = 56
	blockBytes = perBlock*entryBytes + filterBytes

	unknownRun = math.MinInt32
)

// started returns when the entry's call started, in microseconds since 1970. ok is false if that is unknown.
func (e *entry) started() (at int64, ok bool) {
	return e.stored/1000 - int64(e.ran), e.ran != unknownRun
}

// block holds consecutive entries, in the order in which they were added.
type block struct {
	filter  filter // of the hashes of the block's ids, and of its apis with their keys
	entries []entry
	text    []byte // ids and keys
	sealed  int    // capacity of text once the block is complete
}

func (b *block) bytes() int { return blockBytes + max(cap(b.text), b.sealed) }

func (b *block) id(e *entry) string { return string(b.text[e.text : e.text+uint32(e.id)]) }

func (b *block) keyOf(e *entry) string {
	at := e.text + uint32(e.id)
	return string(b.text[at : at+uint32(e.key)])
}

// seal frees the unused memory of a block that is complete.
func (b *block) seal() {
	b.text = slices.Clip(append([]byte(nil), b.text...))
	b.sealed = cap(b.text)
}

// shelf holds the entries of one stream. The entries cover all messages from first to last that the stream had when it
// was read.
type shelf struct {
	created     time.Time // of the stream
	newer       []*block  // messages that came after the shelf was begun; the oldest block is first
	older       []*block  // messages from before the shelf was begun; the newest block is first
	first, last uint64    // sequences
	since       int64     // when the message with the sequence first was stored; 0: unknown
	begun       bool
	absent      bool // the stream does not exist: weir has stored nothing in it yet
	whole       bool // the stream has no message before first
	full        bool // older messages do not fit
	missing     int  // messages that are lost or cannot be read
	bytes       int
}

// room returns the block for the next entry. end is the end of the shelf: newer or older.
func (s *shelf) room(end *[]*block) *block {
	if n := len(*end); n > 0 {
		last := (*end)[n-1]
		if len(last.entries) < perBlock {
			return last
		}
		s.bytes -= last.bytes()
		last.seal()
		s.bytes += last.bytes()
	}
	b := &block{entries: make([]entry, 0, perBlock)}
	*end = append(*end, b)
	s.bytes += b.bytes()
	return b
}

// add adds an entry at one end of the shelf, newer or older. of is the hash of the entry's api and key.
func (s *shelf) add(end *[]*block, e entry, of uint64, id, key string) {
	b := s.room(end)
	b.filter.add(e.hash)
	b.filter.add(of)
	if e.listable {
		before := b.bytes()
		e.text, e.id, e.key = uint32(len(b.text)), uint16(len(id)), uint16(len(key)) //nolint:gosec // ids and keys are bounded
		b.text = append(append(b.text, id...), key...)
		s.bytes += b.bytes() - before
	}
	b.entries = append(b.entries, e)
}

// oldest returns when the newest entry of the oldest block was stored. ok is false if there are fewer than two blocks.
func (s *shelf) oldest() (int64, bool) {
	switch {
	case len(s.newer)+len(s.older) < 2:
		return 0, false
	case len(s.older) > 0:
		return s.older[len(s.older)-1].entries[0].stored, true
	}
	last := s.newer[0].entries
	return last[len(last)-1].stored, true
}

// forget drops the oldest block.
func (s *shelf) forget() {
	var gone *block
	if n := len(s.older); n > 0 {
		gone = s.older[n-1]
		s.older[n-1] = nil
		s.older = s.older[:n-1]
	} else {
		gone = s.newer[0]
		s.newer = slices.Delete(s.newer, 0, 1)
	}
	s.bytes -= gone.bytes()
	s.whole, s.full = false, true
	if n := len(s.older); n > 0 {
		last := s.older[n-1].entries
		s.first, s.since = last[len(last)-1].seq, last[len(last)-1].stored
	} else {
		s.first, s.since = s.newer[0].entries[0].seq, s.newer[0].entries[0].stored
	}
}

// each calls take with the entries that were stored at or before upTo, newest first, until take returns false.
func (s *shelf) each(upTo int64, take func(b *block, e *entry) bool) {
	for _, b := range slices.Backward(s.newer) {
		if len(b.entries) == 0 || b.entries[0].stored > upTo {
			continue
		}
		for i := len(b.entries) - 1; i >= 0; i-- {
			if e := &b.entries[i]; e.stored <= upTo && !take(b, e) {
				return
			}
		}
	}
	for _, b := range s.older {
		if n := len(b.entries); n == 0 || b.entries[n-1].stored > upTo {
			continue
		}
		for i := range b.entries {
			if e := &b.entries[i]; e.stored <= upTo && !take(b, e) {
				return
			}
		}
	}
}

func (b *block) idContains(e *entry, part []byte) bool {
	return bytes.Contains(b.text[e.text:e.text+uint32(e.id)], part)
}

func (b *block) isKey(e *entry, key string) bool {
	at := e.text + uint32(e.id)
	return int(e.key) == len(key) && string(b.text[at:at+uint32(e.key)]) == key
}
