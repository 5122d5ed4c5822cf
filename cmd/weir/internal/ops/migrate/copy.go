package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"
)

// Bounds of copying one stream. If the receiving server gets nothing for five seconds, it abandons the restore and
// keeps nothing of the stream.
const (
	copyChunk  = 128 << 10        // bytes of a message with a chunk
	copyWindow = 4 << 20          // bytes that are sent and not yet acknowledged
	chunkWait  = 60 * time.Second // the longest wait for the next chunk, or for the receipt of a chunk
	endWait    = 10 * time.Minute // the longest wait for the server to build the stream from the chunks
	apiWait    = 60 * time.Second
	newsWait   = 4 * time.Second // the longest wait for a whole cluster to know a subscription
)

// snapshotStream describes a stream that a server is about to send. Config has all fields, including those that this
// version of weir does not know.
type snapshotStream struct {
	Config map[string]json.RawMessage `json:"config"`
	State  json.RawMessage            `json:"state"`
	Error  *jetstream.APIError        `json:"error"`
}

// streamCopy copies one stream from one server to another.
type streamCopy struct {
	from, to *nats.Conn
	name     string
	replicas int // number of replicas of the copy

	chunks  chan *nats.Msg
	deliver string // subject on which the receiver takes the chunks
}

// run copies the stream, with all messages, sequences and consumers, to a server that does not have the stream. The
// receiving server stores the whole stream or nothing. run returns the number of bytes sent.
func (c *streamCopy) run(ctx context.Context) (sent int64, err error) {
	inbox := c.from.NewInbox()
	c.chunks = make(chan *nats.Msg, 2*copyWindow/copyChunk)
	sub, err := c.from.ChanSubscribe(inbox, c.chunks)
	if err != nil {
		return 0, fmt.Errorf("receive %s: %w", c.name, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // an error means that the connection has ended
	if err := c.begin(ctx, inbox); err != nil {
		return 0, err
	}
	for {
		select {
		case chunk := <-c.chunks:
			if len(chunk.Data) == 0 {
				return sent, c.end(ctx, chunk)
			}
			if err := c.relay(ctx, chunk); err != nil {
				return sent, err
			}
			sent += int64(len(chunk.Data))
		case <-time.After(chunkWait):
			return sent, fmt.Errorf("read %s: the server sent nothing for %s", c.name, chunkWait)
		case <-ctx.Done():
			return sent, context.Cause(ctx)
		}
	}
}

// begin asks the source's server to send the stream, and the target's server to receive it.
func (c *streamCopy) begin(ctx context.Context, inbox string) error {
	ctx, cancel := context.WithTimeout(ctx, apiWait)
	defer cancel()
	size := min(copyChunk, c.to.MaxPayload()-1024)
	answer, err := request(ctx, c.from, "$JS.API.STREAM.SNAPSHOT."+c.name, map[string]any{
		"deliver_subject": inbox, "chunk_size": size, "window_size": copyWindow / copyChunk * size,
	})
	var snapshot snapshotStream
	if err = errors.Join(err, readAnswer(answer, &snapshot)); err == nil && snapshot.Error != nil {
		err = snapshot.Error
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.name, err)
	}
	snapshot.Config["num_replicas"] = json.RawMessage(strconv.Itoa(c.replicas))
	delete(snapshot.Config, "placement") // it names servers of the source
	answer, err = request(ctx, c.to, "$JS.API.STREAM.RESTORE."+c.name, map[string]any{"config": snapshot.Config, "state": snapshot.State})
	var restore struct {
		DeliverSubject string              `json:"deliver_subject"`
		Error          *jetstream.APIError `json:"error"`
	}
	if err = errors.Join(err, readAnswer(answer, &restore)); err == nil && restore.Error != nil {
		err = connect.ExplainStreams(restore.Error)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.name, err)
	}
	c.deliver = restore.DeliverSubject
	return nil
}

// relay passes a chunk to the receiver. When the receiver has the chunk, relay acknowledges the chunk to the sender.
func (c *streamCopy) relay(ctx context.Context, chunk *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, chunkWait)
	defer cancel()
	if err := c.give(ctx, chunk.Data); err != nil {
		return err
	}
	if chunk.Reply == "" {
		return nil // the last chunk needs no acknowledgement
	}
	if err := chunk.Respond(nil); err != nil {
		return fmt.Errorf("read %s: %w", c.name, err)
	}
	return nil
}

// end tells the receiver that it has everything, and returns when the stream exists. If the sender broke off, end
// fails.
func (c *streamCopy) end(ctx context.Context, last *nats.Msg) error {
	if status := last.Header.Get("Status"); status != "" && status != "204" {
		return fmt.Errorf("read %s: %s %s", c.name, status, last.Header.Get("Description"))
	}
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	return c.give(ctx, nil)
}

// give sends a message to the receiver and waits for its receipt.
func (c *streamCopy) give(ctx context.Context, data []byte) error {
	receipt, err := c.to.RequestWithContext(ctx, c.deliver, data)
	// In a cluster another server may receive. The server of this connection learns about that server's subscription a
	// moment later.
	for start := time.Now(); errors.Is(err, nats.ErrNoResponders) && time.Since(start) < newsWait && stream.Sleep(ctx, settlePoll); {
		receipt, err = c.to.RequestWithContext(ctx, c.deliver, data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.name, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if len(receipt.Data) == 0 {
		return nil
	}
	if err := readAnswer(receipt.Data, &answer); err != nil {
		return fmt.Errorf("write %s: %w", c.name, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("write %s: %w", c.name, connect.ExplainStreams(answer.Error))
	}
	return nil
}

// request sends a JSON request to the JetStream API.
func request(ctx context.Context, nc *nats.Conn, subject string, question any) ([]byte, error) {
	data, err := json.Marshal(question)
	if err != nil {
		panic("a question that JSON cannot carry: " + err.Error())
	}
	msg, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return msg.Data, nil
}

func readAnswer(data []byte, answer any) error {
	if data == nil {
		return nil // the caller reports an earlier error
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return nil
}
