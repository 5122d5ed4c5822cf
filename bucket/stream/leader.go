package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LeaderMessage is a message as its stream's leader has it, or as a replica has it if AskReplica read it.
type LeaderMessage struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
	Headers []byte    `json:"hdrs"` // in wire format

	header nats.Header // instead of Headers, if a replica gave the message
}

// Header returns the message's headers, never nil.
func (m *LeaderMessage) Header() (nats.Header, error) {
	switch {
	case m.header != nil:
		return m.header, nil
	case len(m.Headers) == 0:
		return nats.Header{}, nil
	}
	return nats.DecodeHeadersMsg(m.Headers)
}

// Deleted reports whether the message, from the stream of a key-value bucket, says that its key has no value.
func (m *LeaderMessage) Deleted() bool {
	h, err := m.Header()
	return err == nil && (h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != "")
}

// AskLeader asks a stream's leader for a message, and returns nil if there is none. JetStream's direct reads may come
// from a replica that lags, so use AskLeader if a message must not be missed. request is a request of
// $JS.API.STREAM.MSG.GET. AskLeader blocks for ten seconds at most.
func AskLeader(ctx context.Context, nc *nats.Conn, stream, request string) (*LeaderMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWait)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(request))
	if err != nil {
		return nil, fmt.Errorf("ask the leader of %s: %w", stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *LeaderMessage      `json:"message"`
	}
	switch err := json.Unmarshal(msg.Data, &answer); {
	case err != nil, answer.Error == nil && answer.Message == nil:
		return nil, fmt.Errorf("ask the leader of %s: unreadable answer", stream)
	case answer.Error != nil && answer.Error.ErrorCode == CodeNoMessage:
		return nil, nil //nolint:nilnil // none is no error
	case answer.Error != nil:
		return nil, fmt.Errorf("ask the leader of %s: %w", stream, answer.Error)
	}
	return answer.Message, nil
}

// NewestEntry returns the newest message of a key of a key-value bucket, or of all keys that a pattern matches, as the
// leader has it. It returns nil if there is none. The message may be a deletion: see Deleted. NewestEntry blocks for
// ten seconds at most.
func NewestEntry(ctx context.Context, nc *nats.Conn, bucket, key string) (*LeaderMessage, error) {
	return AskLeader(ctx, nc, "KV_"+bucket, fmt.Sprintf(`{"last_by_subj":%q}`, "$KV."+bucket+"."+key))
}

// replicaWait is how long AskReplica waits for a replica before it asks the leader.
const replicaWait = 2 * time.Second

// AskReplica is AskLeader for reads that need not be the newest. Any replica may answer, and it may lag: it may lack a
// new message, or still have a deleted one. The leader answers through JetStream's API, which is one queue for all
// requests, so its answer waits for the deletions of finished jobs. A replica's answer does not. AskReplica asks the
// leader if the stream allows no direct reads, or if no replica answers within two seconds.
func AskReplica(ctx context.Context, nc *nats.Conn, stream, request string) (*LeaderMessage, error) {
	asked, cancel := context.WithTimeout(ctx, replicaWait)
	defer cancel()
	msg, err := nc.RequestWithContext(asked, "$JS.API.DIRECT.GET."+stream, []byte(request))
	switch {
	case errors.Is(err, nats.ErrNoResponders), err != nil && asked.Err() != nil && ctx.Err() == nil:
		return AskLeader(ctx, nc, stream, request)
	case err != nil:
		return nil, fmt.Errorf("ask a replica of %s: %w", stream, err)
	}
	if msg.Header.Get(jetstream.SequenceHeader) == "" { // no message, so Status is the server's
		if status := msg.Header.Get("Status"); status != "404" {
			return nil, fmt.Errorf("ask a replica of %s: %s %s", stream, status, msg.Header.Get("Description"))
		}
		return nil, nil //nolint:nilnil // none is no error
	}
	m := &LeaderMessage{Subject: msg.Header.Get(jetstream.SubjectHeader), Data: msg.Data, header: msg.Header}
	var seqErr, timeErr error
	m.Seq, seqErr = strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	m.Time, timeErr = time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer))
	if err := errors.Join(seqErr, timeErr); err != nil {
		return nil, fmt.Errorf("ask a replica of %s: unreadable answer: %w", stream, err)
	}
	for _, name := range [...]string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer} {
		delete(m.header, name)
	}
	return m, nil
}

// MessageAt returns the message at a sequence; nil if there is none. It asks a replica first. If the replica has no
// such message, or suits rejects it, MessageAt asks the stream's leader. So it never misses a message, but it may
// return one that was just deleted.
func MessageAt(ctx context.Context, nc *nats.Conn, stream string, seq uint64, suits func(*LeaderMessage) bool) (*LeaderMessage, error) {
	request := fmt.Sprintf(`{"seq":%d}`, seq)
	m, err := AskReplica(ctx, nc, stream, request)
	if err != nil || m != nil && suits(m) {
		return m, err
	}
	return AskLeader(ctx, nc, stream, request)
}

// Place is the position of a message in its stream, and the time when the stream stored it.
type Place struct {
	Seq  uint64
	Time time.Time
}

// End returns the place of the newest message of a subject, as the stream's leader has it; the zero value if there is
// none. If the leader counts such a message but cannot read it, readable is false, and End returns the end of the whole
// stream: no message of the subject is behind it. End blocks for twenty seconds at most.
func End(ctx context.Context, nc *nats.Conn, stream, subject string) (end Place, readable bool, err error) {
	m, err := AskLeader(ctx, nc, stream, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err != nil {
		return Place{}, false, err
	}
	if m != nil {
		return Place{m.Seq, m.Time}, true, nil
	}
	switch state, err := StateOf(ctx, nc, stream, subject); {
	case err != nil:
		return Place{}, false, err
	case len(state.Subjects) == 0:
		return Place{}, true, nil
	default:
		return Place{state.LastSeq, state.LastTime}, false, nil
	}
}

// Near is a part of a stream that Read reads message by message. All fields are required.
type Near struct {
	Conn     *nats.Conn
	Stream   string
	Subject  string
	From, To time.Time // when the messages were stored
	Most     int       // how many messages are read at most
}

// Read passes the messages of the part to take, the oldest first, as the stream's leader has them, until take fails;
// ErrEnough ends it without an error. A consumer with a filter makes the server search the whole stream. Read only
// makes it search what lies between two messages of the subject. Read blocks for a round trip for each message.
func (n Near) Read(ctx context.Context, take func(m *LeaderMessage) error) error {
	m, err := FirstSince(ctx, n.Conn, n.Stream, n.Subject, n.From)
	for looked := 0; err == nil && m != nil && !m.Time.After(n.To) && looked < n.Most; looked++ {
		if err := take(m); errors.Is(err, ErrEnough) {
			return nil
		} else if err != nil {
			return err
		}
		m, err = AskLeader(ctx, n.Conn, n.Stream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, m.Seq+1, n.Subject))
	}
	return err
}
