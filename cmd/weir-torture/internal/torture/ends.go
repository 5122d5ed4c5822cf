package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir-torture/internal/judge"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// errUnread says that a stream counts messages which do not come.
var errUnread = errors.New("messages cannot be read")

// comesWithin bounds the wait for the next message of a stream that has one.
const comesWithin = 30 * time.Second

// readEnds reads the streams of results, letters and events. It goes on without messages that cannot be read.
func readEnds(ctx context.Context, js jetstream.JetStream) (*judge.Ends, error) {
	e := &judge.Ends{
		Results: map[string]int{}, Taken: map[string]time.Time{}, Calls: map[string]int{}, Events: map[string]int{}, Answers: map[string]judge.AnswerOf{},
		Reused: map[string]string{}, Stored: map[string]time.Time{},
	}
	read := []error{
		readStream(ctx, js, ledger.ResultsStream, "weir.results.>", func(m jetstream.Msg) {
			id := m.Headers().Get(ingest.HeaderJobID)
			e.Results[id]++
			e.Taken[id] = timeOf(m.Headers().Get(ledger.HeaderAcceptedAt))
			var answer struct {
				Call int64  `json:"call"`
				At   int    `json:"at"`
				Of   int64  `json:"of,string"` // if the answer is of an operation: the call that began it
				ID   string `json:"id"`        // if the answer is a language model's: chatcmpl- and the call
			}
			err := json.Unmarshal(m.Data(), &answer)
			if number, ok := strings.CutPrefix(answer.ID, "chatcmpl-"); ok {
				answer.Call, _ = strconv.ParseInt(number, 10, 64)
			}
			if err == nil && answer.Call+answer.Of > 0 {
				e.Answers[id] = judge.AnswerOf{Call: answer.Call + answer.Of, Place: answer.At}
			}
			if of := m.Headers().Get(ledger.HeaderReused); of != "" {
				e.Reused[id] = of
			}
			if meta, err := m.Metadata(); err == nil {
				e.Stored[id] = meta.Timestamp
			}
			e.Calls[id], _ = strconv.Atoi(m.Headers().Get(ledger.HeaderCalls))
		}),
		readStream(ctx, js, deadletter.Stream, ">", func(m jetstream.Msg) {
			h := m.Headers()
			l := judge.Letter{
				Job: h.Get(ingest.HeaderJobID), Reason: h.Get(deadletter.HeaderReason), Detail: h.Get(deadletter.HeaderDetail),
				At: originOf(h.Get(ingest.HeaderMsgID)), Time: timeOf(h.Get(deadletter.HeaderAt)),
			}
			if meta, err := m.Metadata(); err == nil {
				l.Seq = meta.Sequence.Stream
			}
			if e.Letters = append(e.Letters, l); l.At != (judge.Place{}) {
				e.Taken[l.Job] = timeOf(h.Get(deadletter.HeaderAccepted))
			}
		}),
		readStream(ctx, js, deadletter.EventsStream, "weir.events.throttled.>", func(m jetstream.Msg) {
			var event struct {
				Data struct {
					Job string `json:"job"`
				} `json:"data"`
			}
			if json.Unmarshal(m.Data(), &event) == nil {
				e.Events[event.Data.Job]++
			}
		}),
	}
	for i, err := range read {
		if errors.Is(err, errUnread) {
			e.Unread, read[i] = append(e.Unread, err.Error()), nil
		}
	}
	return e, errors.Join(read...)
}

// timeOf parses the time in a header. It returns zero if the header has none.
func timeOf(text string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text)
	return t
}

// originOf returns the place of a letter's job in its queue, as the letter's message id names it.
func originOf(id string) judge.Place {
	parts := strings.Split(strings.TrimPrefix(id, "letter."), ".") // stream, sequence, when it was stored
	if len(parts) < 2 {
		return judge.Place{}
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return judge.Place{}
	}
	return judge.Place{Stream: parts[0], Seq: n}
}

// readStream calls take for each message that a stream has now. It returns errUnread if one of them does not come
// within comesWithin.
func readStream(ctx context.Context, js jetstream.JetStream, name, subject string, take func(jetstream.Msg)) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	left := info.NumPending + info.Delivered.Consumer
	if left == 0 {
		return nil
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer msgs.Stop()
	for ; left > 0; left-- {
		m, err := next(ctx, msgs)
		if err != nil {
			return fmt.Errorf("read %s, of which %d messages are left: %w", name, left, err)
		}
		take(m)
	}
	return nil
}

// next waits for the next message, at most comesWithin.
func next(ctx context.Context, msgs jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, comesWithin, errUnread)
	defer cancel()
	m, err := msgs.Next(jetstream.NextContext(ctx))
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return m, err
}
