package recorder

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"
)

// Answer is the outcome of a call, as the dispatcher judged it when the call ended. A later process that settles the
// call does not judge it again by its own configuration.
type Answer struct {
	Verdict   uint8 // in the writer's numbering
	Sent      bool  // at least one byte may have left
	Cut       bool  // the answer broke off
	More      bool  // Body is not the whole body
	Fault     bool
	HoldSpent bool
	Holds     bool // the operation holds its slot
	Status    int
	Started   time.Time
	Ended     time.Time
	After     time.Duration
	HoldWait  time.Duration

	Billed, Reason, Detail, HoldHeader, Mend, ContentType string // each at most MaxText
	Operation, Cancel                                     string // addresses of the operation that the call began

	Limits    uint64  // identifies the limits that Taken counts
	Taken     []int64 // what the call took of each limit; at most MaxTaken
	Paid      int64   // what the call cost, in millionths
	Unsettled uint64  // one bit for each of these limits
	Body      []byte
}

// Bounds of a noted answer. MaxBody bounds the whole answer: the body gets what the other fields leave.
const (
	MaxText  = 2 << 10
	MaxTaken = 64
	MaxBody  = mostChunks * chunkBytes
)

// clone returns a copy. Later changes of the answer do not reach it.
func (a *Answer) clone() *Answer {
	c := *a
	c.Taken, c.Body = slices.Clone(a.Taken), slices.Clone(a.Body)
	return &c
}

const answerFixed = 1 + 1 + 2 + 8 + 8 + 8 + 8 + 8 + 8 + 8 + 2

func (a *Answer) texts() [8]*string {
	return [...]*string{&a.Billed, &a.Reason, &a.Detail, &a.HoldHeader, &a.Mend, &a.ContentType, &a.Operation, &a.Cancel}
}

// room returns how many bytes the answer takes without its body.
func (a *Answer) room() int {
	n := answerFixed + 8*min(len(a.Taken), MaxTaken)
	for _, text := range a.texts() {
		n += 2 + min(len(*text), MaxText)
	}
	return n
}

// flags packs the answer's booleans into bits, in the order in which readAnswer reads them. more says that the noted
// body is cut.
func (a *Answer) flags(more bool) (f byte) {
	for i, is := range [...]bool{a.Sent, a.Cut, a.More || more, a.Fault, a.HoldSpent, a.Holds} {
		if is {
			f |= 1 << i
		}
	}
	return f
}

// pen writes into chunks, one after another.
type pen struct {
	chunks [mostChunks][]byte
	in, at int // the place of the next byte
}

func (p *pen) write(b []byte) {
	for len(b) > 0 {
		n := copy(p.chunks[p.in][p.at:], b)
		b = b[n:]
		p.on(n)
	}
}

func (p *pen) on(n int) {
	if p.at += n; p.at == chunkBytes {
		p.in, p.at = p.in+1, 0
	}
}

func (p *pen) text(s string) {
	s = s[:min(len(s), MaxText)]
	p.number(uint64(len(s)), 2)
	for len(s) > 0 {
		n := copy(p.chunks[p.in][p.at:], s)
		s = s[n:]
		p.on(n)
	}
}

func (p *pen) number(n uint64, bytes int) {
	if chunk := p.chunks[p.in]; chunkBytes-p.at > 8 {
		binary.LittleEndian.PutUint64(chunk[p.at:], n) // later writes overwrite the surplus
		p.at += bytes
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	p.write(b[:bytes])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the checksum of everything that was written.
func (p *pen) sum() (sum uint32) {
	for _, chunk := range p.chunks[:p.in] {
		sum = crc32.Update(sum, castagnoli, chunk)
	}
	if p.at > 0 {
		sum = crc32.Update(sum, castagnoli, p.chunks[p.in][:p.at])
	}
	return sum
}

// write writes the answer to p. body is how many bytes of Body it writes.
func (a *Answer) write(p *pen, body int) {
	p.number(uint64(a.Verdict), 1)
	p.number(uint64(a.flags(body < len(a.Body))), 1)
	p.number(uint64(a.Status), 2)
	for _, n := range [...]int64{a.Started.UnixNano(), a.Ended.UnixNano(), int64(a.After), int64(a.HoldWait), int64(a.Limits), int64(a.Unsettled), a.Paid} {
		p.number(uint64(n), 8)
	}
	taken := a.Taken[:min(len(a.Taken), MaxTaken)]
	p.number(uint64(len(taken)), 2)
	for _, n := range taken {
		p.number(uint64(n), 8)
	}
	for _, text := range a.texts() {
		p.text(*text)
	}
	p.write(a.Body[:body])
}

var errAnswer = errors.New("the noted answer is incomplete")

// readAnswer reads what write wrote.
func readAnswer(b []byte) (*Answer, error) {
	var short bool
	number := func(bytes int) (n uint64) {
		if len(b) < bytes {
			short = true
			return 0
		}
		for i := bytes - 1; i >= 0; i-- {
			n = n<<8 | uint64(b[i])
		}
		b = b[bytes:]
		return n
	}
	a := &Answer{Verdict: uint8(number(1))}
	flags := number(1)
	for i, is := range [...]*bool{&a.Sent, &a.Cut, &a.More, &a.Fault, &a.HoldSpent, &a.Holds} {
		*is = flags&(1<<i) != 0
	}
	a.Status = int(number(2))
	a.Started, a.Ended = time.Unix(0, int64(number(8))), time.Unix(0, int64(number(8)))
	a.After, a.HoldWait = time.Duration(number(8)), time.Duration(number(8))
	a.Limits, a.Unsettled, a.Paid = number(8), number(8), int64(number(8))
	n := int(number(2))
	if n > MaxTaken {
		return nil, errAnswer
	}
	for range n {
		a.Taken = append(a.Taken, int64(number(8)))
	}
	for _, text := range a.texts() {
		n := int(number(2))
		if short || n > MaxText || n > len(b) {
			return nil, errAnswer
		}
		*text, b = string(b[:n]), b[n:]
	}
	if short {
		return nil, errAnswer
	}
	a.Body = append([]byte(nil), b...)
	return a, nil
}
