package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MaxExchange bounds the requests of one exchange that are under way at once. With more API requests the server could
// drop its whole queue of requests, which all clients share.
const MaxExchange = 256

// AnswerWait is how long a stream may take to answer. An election in a clustered stream takes up to nine seconds.
const AnswerWait = 10 * time.Second

// reconnectGrace is how long an Exchange waits, after a lost connection is back, for answers to requests that it sent
// before the loss. A restarted server sends no such answers, but a cluster may.
const reconnectGrace = 500 * time.Millisecond

// Exchange sends many requests at once and collects their replies over one subscription. It is used by one goroutine
// at a time.
type Exchange struct {
	nc      *nats.Conn
	inbox   string
	sub     *nats.Subscription
	replies chan *nats.Msg
	back    chan nats.Status // gets a value when a lost connection is back
	disk    Disk             // nil: acknowledged messages are already as durable as possible
	stream  string           // the stream that it asks, by the last answer; "" before the first
	round   int
	groups  grouping
}

// NewExchange returns an Exchange, which listens to replies until Close. With a disk, a message counts as stored only
// when the disk has it.
func NewExchange(nc *nats.Conn, disk Disk) (*Exchange, error) {
	x := &Exchange{nc: nc, inbox: nc.NewInbox(), replies: make(chan *nats.Msg, 4*MaxExchange), disk: disk}
	var err error
	if x.sub, err = nc.ChanSubscribe(x.inbox+".*.*", x.replies); err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	x.back = nc.StatusChanged(nats.CONNECTED)
	return x, nil
}

// Close stops listening to replies.
func (x *Exchange) Close() error {
	x.nc.RemoveStatusListener(x.back)
	if err := x.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("unsubscribe from replies: %w", err)
	}
	return nil
}

// Reply is the outcome of one request: a message, or the reason why there is none.
type Reply struct {
	Msg *nats.Msg
	Err error // ErrUnsent or ErrUnanswered
}

// Do publishes msgs, at most MaxExchange, and waits for a reply to each message for which wants reports true. If one
// message cannot be sent, the others are sent nevertheless. Do blocks for about AnswerWait at most, or until ctx ends.
func (x *Exchange) Do(ctx context.Context, msgs []*nats.Msg, wants func(i int) bool) []Reply {
	if len(msgs) > MaxExchange {
		panic("bucket: more requests in one exchange than its bound")
	}
	x.round++
	prefix := x.inbox + "." + strconv.Itoa(x.round) + "."
	replies := make([]Reply, len(msgs))
	for len(x.back) > 0 {
		<-x.back // the connection was lost and came back since the last round
	}
	missing := 0
	for i, m := range msgs {
		m.Reply = ""
		if wants(i) {
			m.Reply = prefix + strconv.Itoa(i)
		}
		if err := x.nc.PublishMsg(m); errors.Is(err, nats.ErrMaxPayload) {
			replies[i].Err = fmt.Errorf("%w: it has %d bytes, the server takes %d", ErrTooLarge, m.Size(), x.nc.MaxPayload())
		} else if err != nil {
			replies[i].Err = fmt.Errorf("%w: %w", ErrUnsent, err)
		} else if wants(i) {
			replies[i].Err = ErrUnanswered
			missing++
		}
	}
	timeout := time.NewTimer(AnswerWait)
	defer timeout.Stop()
	for missing > 0 {
		select {
		case msg := <-x.replies:
			index, ok := strings.CutPrefix(msg.Subject, prefix)
			if i, err := strconv.Atoi(index); ok && err == nil && i >= 0 && i < len(replies) && replies[i].Msg == nil {
				replies[i] = Reply{Msg: msg}
				missing--
			}
		case <-x.back:
			timeout.Reset(reconnectGrace)
		case <-timeout.C:
			return replies
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// Every reports true for each message. Passed as wants, it asks for all replies. Passed as may, it lets every message
// be sent again.
func Every(int) bool { return true }

// ErrTooLarge says that a message or its headers exceed the maximum of its stream or of the server.
var ErrTooLarge = errors.New("the message is larger than the maximum size")

// Errors that a caller of a stream branches on.
var (
	ErrFull       = errors.New("the stream holds as many messages of this subject as it may")
	ErrStale      = errors.New("another message came first")
	ErrNotKnown   = errors.New("the stream does not know the message's id")
	ErrUnanswered = errors.New("the stream did not answer: it is not known whether the message was stored")
	ErrRetry      = errors.New("the stream could not answer now")
	ErrUnsent     = errors.New("the message could not be sent")
	ErrStopping   = errors.New("weir is stopping")
)

// JetStream error codes, from nats-server 2.15 errors.json.
const (
	codeMessageTooLarge   = 10054
	codeHeaderTooLarge    = 10097
	codeStoreFailed       = 10077 // the description tells which limit
	codeRollupFailed      = 10111
	CodeWrongLastSeq      = 10071
	CodeWrongLastSeqConst = 10164
	codeBatchDuplicate    = 10201
	CodeNoMessage         = 10037
	CodeSequenceNotFound  = 10043
	CodeDeleteFailed      = 10057 // the description tells why
	fullDescription       = "maximum messages per subject exceeded"
	statusNoResponders    = "503"
	headerBatchID         = "Nats-Batch-Id"
	headerBatchSeq        = "Nats-Batch-Sequence"
	headerBatchCommit     = "Nats-Batch-Commit"
	HeaderRollup          = "Nats-Rollup"
	HeaderExpectedSeq     = "Nats-Expected-Last-Subject-Sequence"
	HeaderExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// Answer is a stream's answer to one message.
type Answer struct {
	Stream    string
	Seq       uint64
	Duplicate bool
	Err       error
}

// readAck reads a PubAck.
func readAck(r Reply) Answer {
	if r.Msg == nil {
		return Answer{Err: r.Err}
	}
	reply := r.Msg
	if len(reply.Data) == 0 && reply.Header.Get("Status") == statusNoResponders {
		return Answer{Err: fmt.Errorf("%w: no stream answers (an election, or the server has no JetStream)", ErrRetry)}
	}
	if name, seq, ok := plainAck(reply.Data); ok {
		return Answer{Stream: name, Seq: seq}
	}
	var ack struct {
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return Answer{Err: fmt.Errorf("%w: unreadable answer", ErrUnanswered)}
	}
	if ack.Error != nil {
		return Answer{Err: ackError(ack.Error)}
	}
	return Answer{Stream: ack.Stream, Seq: ack.Seq, Duplicate: ack.Duplicate}
}

// plainAck reads the most frequent form of an answer, {"stream":"NAME","seq":N} as the server writes it. For any other
// form ok is false, and readAck uses the JSON decoder, which takes six times as long and allocates.
func plainAck(data []byte) (name string, seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return "", 0, false
	}
	raw, rest, ok := bytes.Cut(rest, []byte(`","seq":`))
	if !ok || bytes.ContainsAny(raw, `"\\`) {
		return "", 0, false
	}
	number, ok := bytes.CutSuffix(rest, []byte("}"))
	if !ok || len(number) == 0 || number[0] == '0' {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 64)
	return string(raw), seq, err == nil
}

func ackError(e *jetstream.APIError) error {
	switch {
	case e.ErrorCode == codeStoreFailed && e.Description == fullDescription:
		return ErrFull
	case e.ErrorCode == CodeWrongLastSeq, e.ErrorCode == CodeWrongLastSeqConst:
		return fmt.Errorf("%w: %s", ErrStale, e.Description)
	case e.ErrorCode == codeRollupFailed:
		return ErrNotKnown
	case e.ErrorCode == codeMessageTooLarge, e.ErrorCode == codeHeaderTooLarge:
		return fmt.Errorf("%w: %s", ErrTooLarge, e.Description)
	}
	return e
}
