package lane

import (
	"encoding/binary"
	"time"

	"weir/bucket/queue"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// kept is a message that was read ahead of its call, packed into one piece. A parsed header would be a map that takes
// several times the bytes of its text, and most jobs wait long.
type kept struct {
	packed []byte // the length of the header fields; each field as name and value with their lengths; the body
	stored int64  // when the stream stored it, in nanoseconds since 1970
}

// keptRest is the number of bytes that a kept message takes besides packed. These are its place in the map, which is
// half empty at worst, and what the allocator rounds up.
const keptRest = 144

func pack(e queue.Entry) kept {
	var number [binary.MaxVarintLen64]byte
	withLength := func(n int) int { return binary.PutUvarint(number[:], uint64(n)) + n }
	fields := 0
	for name, values := range e.Header {
		for _, v := range values {
			fields += withLength(len(name)) + withLength(len(v))
		}
	}
	packed := binary.AppendUvarint(make([]byte, 0, withLength(fields)+len(e.Data)), uint64(fields))
	for name, values := range e.Header {
		for _, v := range values {
			packed = append(binary.AppendUvarint(packed, uint64(len(name))), name...)
			packed = append(binary.AppendUvarint(packed, uint64(len(v))), v...)
		}
	}
	packed = append(packed, e.Data...)
	return kept{packed: packed, stored: e.Time.UnixNano()}
}

// entry unpacks the message. It copies the header in one piece, and does not copy the body.
func (k kept) entry(key string, seq uint64) queue.Entry {
	size, length := binary.Uvarint(k.packed)
	fields, body := k.packed[length:][:size], k.packed[length:][size:]
	texts := string(fields)
	text := func() string {
		n, length := binary.Uvarint(fields)
		from := len(texts) - len(fields) + length
		fields = fields[length:][n:]
		return texts[from:][:n]
	}
	e := queue.Entry{Seq: seq, Key: key, Header: nats.Header{}, Data: body, Time: time.Unix(0, k.stored)}
	for len(fields) > 0 {
		name := text()
		e.Header[name] = append(e.Header[name], text())
	}
	return e
}

func (k kept) Size() int64 { return int64(cap(k.packed)) + keptRest }

// ReadAhead keeps messages of a partition in memory that were read before they are needed, as long as there is room.
// The lane's lock guards it.
type ReadAhead struct {
	Messages map[uint64]kept // nil when the tenure has ended
	bytes    int64
	Full     bool // a message did not fit
	holdings *queue.Holdings
}

// newReadAhead returns an empty ReadAhead.
func newReadAhead(h *queue.Holdings) ReadAhead {
	return ReadAhead{Messages: map[uint64]kept{}, holdings: h}
}

// KeepLocked keeps a message until its job is made ready, if there is room.
func (a *ReadAhead) KeepLocked(e queue.Entry) {
	if e.Bare || a.Messages == nil {
		return
	}
	k := pack(e)
	if !a.holdings.Keep(k.Size(), a.bytes) {
		a.Full = true
		return
	}
	a.Messages[e.Seq] = k
	a.bytes += k.Size()
}

// TakeKept returns a kept message, and stops keeping it.
func (a *ReadAhead) TakeKept(key string, seq uint64) (queue.Entry, bool) {
	e, ok := a.Peek(key, seq)
	a.DropKept(seq)
	return e, ok
}

// Peek returns a kept message, and goes on keeping it.
func (a *ReadAhead) Peek(key string, seq uint64) (queue.Entry, bool) {
	k, ok := a.Messages[seq]
	if !ok {
		return queue.Entry{}, false
	}
	return k.entry(key, seq), true
}

// DropKept drops a message that is not needed any more.
func (a *ReadAhead) DropKept(seq uint64) {
	k, ok := a.Messages[seq]
	if !ok {
		return
	}
	delete(a.Messages, seq)
	a.bytes -= k.Size()
	a.holdings.Drop(k.Size())
	if len(a.Messages) == 0 {
		a.Messages = map[uint64]kept{} // an emptied map stays as large as it was
	}
}

// DropAllKept drops all messages, and makes KeepLocked keep no more.
func (a *ReadAhead) DropAllKept() {
	a.holdings.Drop(a.bytes)
	a.Messages, a.bytes = nil, 0
}

// KeptID returns the id of a job whose message is kept. Otherwise it returns "".
func (a *ReadAhead) KeptID(seq uint64) string {
	k, ok := a.Messages[seq]
	if !ok {
		return ""
	}
	return k.entry("", seq).Header.Get(ingest.HeaderJobID)
}
