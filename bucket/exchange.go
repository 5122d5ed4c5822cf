package bucket

import (
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

// maxExchange bounds the requests of one exchange under way at once: more API requests could make the server drop its
// whole queue, everybody's.
const maxExchange = 256

// answerWait is how long a stream may take to answer; an election of a clustered stream takes up to nine seconds.
const answerWait = 10 * time.Second

// reconnectGrace is how long answers to what was sent before the connection was lost are waited for after it is back: from
// a server that was restarted none will come, from a cluster they may.
const reconnectGrace = 500 * time.Millisecond

// exchange sends many requests at once and collects their replies over one subscription. It is used by one goroutine
// at a time.
type exchange struct {
	nc      *nats.Conn
	inbox   string
	sub     *nats.Subscription
	replies chan *nats.Msg
	back    chan nats.Status // tells that the connection is back
	round   int
	groups  grouping
}

func newExchange(nc *nats.Conn) (*exchange, error) {
	x := &exchange{nc: nc, inbox: nc.NewInbox(), replies: make(chan *nats.Msg, 4*maxExchange)}
	var err error
	if x.sub, err = nc.ChanSubscribe(x.inbox+".*.*", x.replies); err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	x.back = nc.StatusChanged(nats.CONNECTED)
	return x, nil
}

func (x *exchange) close() error {
	x.nc.RemoveStatusListener(x.back)
	if err := x.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("unsubscribe from replies: %w", err)
	}
	return nil
}

// reply is what came of one request: a message, or the reason why there is none.
type reply struct {
	msg *nats.Msg
	err error // errUnsent or errUnanswered
}

// do publishes msgs, at most maxExchange, and waits for a reply to each that wants reports true for. What one message
// cannot be sent for does not hit the others.
func (x *exchange) do(ctx context.Context, msgs []*nats.Msg, wants func(i int) bool) []reply {
	if len(msgs) > maxExchange {
		panic("bucket: more requests in one exchange than its bound")
	}
	x.round++
	prefix := x.inbox + "." + strconv.Itoa(x.round) + "."
	replies := make([]reply, len(msgs))
	for len(x.back) > 0 {
		<-x.back // it was lost and is back since the last round
	}
	missing := 0
	for i, m := range msgs {
		m.Reply = ""
		if wants(i) {
			m.Reply = prefix + strconv.Itoa(i)
		}
		if err := x.nc.PublishMsg(m); errors.Is(err, nats.ErrMaxPayload) {
			replies[i].err = fmt.Errorf("%w: it has %d bytes, the server takes %d", ErrTooLarge, m.Size(), x.nc.MaxPayload())
		} else if err != nil {
			replies[i].err = fmt.Errorf("%w: %w", errUnsent, err)
		} else if wants(i) {
			replies[i].err = errUnanswered
			missing++
		}
	}
	timeout := time.NewTimer(answerWait)
	defer timeout.Stop()
	for missing > 0 {
		select {
		case msg := <-x.replies:
			index, ok := strings.CutPrefix(msg.Subject, prefix)
			if i, err := strconv.Atoi(index); ok && err == nil && i < len(replies) && replies[i].msg == nil {
				replies[i] = reply{msg: msg}
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

func every(int) bool { return true }

// ErrTooLarge says that a message is larger than its stream or the server will ever take, or its headers are.
var ErrTooLarge = errors.New("the message is larger than is taken")

// Errors that a caller of a stream branches on.
var (
	errFull       = errors.New("the stream holds as many messages of this subject as it may")
	errStale      = errors.New("another message came first")
	errNotKnown   = errors.New("the stream does not know the message's id")
	errUnanswered = errors.New("the stream did not answer: it is not known whether the message was stored")
	errRetry      = errors.New("the stream could not answer now")
	errUnsent     = errors.New("the message could not be sent")
	errStopping   = errors.New("weir is stopping")
)

// JetStream error codes, from nats-server 2.15 errors.json.
const (
	codeMessageTooLarge    = 10054
	codeHeaderTooLarge     = 10097
	codeStoreFailed        = 10077 // the description tells which limit
	codeRollupFailed       = 10111
	codeWrongLastSeq       = 10071
	codeWrongLastSeqConst  = 10164
	codeBatchDuplicate     = 10201
	codeNoMessage          = 10037
	codeDeleteNotFound     = 10057
	codeDeleteFailed       = 10043
	fullDescription        = "maximum messages per subject exceeded"
	statusNoResponders     = "503"
	headerBatchID          = "Nats-Batch-Id"
	headerBatchSeq         = "Nats-Batch-Sequence"
	headerBatchCommit      = "Nats-Batch-Commit"
	headerRollup           = "Nats-Rollup"
	headerExpectedSubjSeq  = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubjName = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// stored is what a stream said about one message.
type stored struct {
	seq       uint64
	duplicate bool
	err       error
}

// readAck reads a PubAck.
func readAck(r reply) stored {
	if r.msg == nil {
		return stored{err: r.err}
	}
	reply := r.msg
	if len(reply.Data) == 0 && reply.Header.Get("Status") == statusNoResponders {
		return stored{err: fmt.Errorf("%w: no stream answers (an election, or the server has no JetStream)", errRetry)}
	}
	var ack struct {
		Seq       uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return stored{err: fmt.Errorf("%w: unreadable answer", errUnanswered)}
	}
	if ack.Error != nil {
		return stored{err: ackError(ack.Error)}
	}
	return stored{seq: ack.Seq, duplicate: ack.Duplicate}
}

func ackError(e *jetstream.APIError) error {
	switch {
	case e.ErrorCode == codeStoreFailed && e.Description == fullDescription:
		return errFull
	case e.ErrorCode == codeWrongLastSeq, e.ErrorCode == codeWrongLastSeqConst:
		return fmt.Errorf("%w: %s", errStale, e.Description)
	case e.ErrorCode == codeRollupFailed:
		return errNotKnown
	case e.ErrorCode == codeMessageTooLarge, e.ErrorCode == codeHeaderTooLarge:
		return fmt.Errorf("%w: %s", ErrTooLarge, e.Description)
	}
	return e
}
