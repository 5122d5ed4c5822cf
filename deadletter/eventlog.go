package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/ingest"
)

// ErrNoEvents reports that the stream of events does not exist: weir has not run on this server.
var ErrNoEvents = errors.New("there are no events: weir has not run on this server")

// eventSubjects are the subjects of events: by type, api and key.
const eventSubjects ingest.Subjects = "weir.events."

// EventFilter chooses events. The zero value chooses all.
type EventFilter struct {
	Type  EventType
	API   string // ingest.NoToken for events without an api
	Key   string
	Since time.Time // stored then or later
}

func (f *EventFilter) subject() string {
	return eventSubjects.Match(string(f.Type), apiName(f.API), f.Key)
}

// KeptEvent is an event as the stream stores it.
type KeptEvent struct {
	Seq    uint64
	Stored time.Time // by the server
	Type   EventType
	API    string
	Key    string
	Data   map[string]any
	JSON   []byte // the CloudEvent
}

// NewestEvents passes the events that f chooses to take, newest first, until take fails; stream.ErrEnough ends it
// without an error. It reads at most most events, or all if most is 0. It fails with ErrNoEvents.
func NewestEvents(ctx context.Context, js jetstream.JetStream, f EventFilter, most int, take func(KeptEvent) error) (stream.Reach, error) {
	n := stream.Newest{JetStream: js, Stream: EventsStream, Subject: f.subject(), Since: f.Since, Most: most}
	reach, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if e, ok := parseEvent(msg.Subject(), msg.Data()); ok {
			e.Seq, e.Stored = meta.Sequence.Stream, meta.Timestamp
			return take(e)
		}
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return reach, ErrNoEvents
	}
	return reach, err
}

// EventsNear passes the events that f chooses, stored between f.Since and until, to take, oldest first, until take
// fails; stream.ErrEnough ends it without an error. It reads at most most events.
func EventsNear(ctx context.Context, js jetstream.JetStream, f EventFilter, until time.Time, most int, take func(KeptEvent) error) error {
	n := stream.Near{Conn: js.Conn(), Stream: EventsStream, Subject: f.subject(), From: f.Since, To: until, Most: most}
	return n.Read(ctx, func(m *stream.LeaderMessage) error {
		e, ok := parseEvent(m.Subject, m.Data)
		if !ok {
			return nil
		}
		e.Seq, e.Stored = m.Seq, m.Time
		return take(e)
	})
}

// EventAt returns the event at a sequence. It returns nil if that event is gone or not about the job with this id.
func EventAt(ctx context.Context, js jetstream.JetStream, seq uint64, job string) (*KeptEvent, error) {
	of := func(m *stream.LeaderMessage) *KeptEvent {
		e, ok := parseEvent(m.Subject, m.Data)
		if !ok || e.Data[eventJob] != job {
			return nil
		}
		e.Seq, e.Stored = m.Seq, m.Time
		return &e
	}
	m, err := stream.MessageAt(ctx, js.Conn(), EventsStream, seq, func(m *stream.LeaderMessage) bool { return of(m) != nil })
	if err != nil || m == nil {
		return nil, err
	}
	return of(m), nil
}

// eventJob is the field of an event's data that names the event's job.
const eventJob = "job"

// EventPlace is what an index needs of an event. Job is "" if the event is about no job.
type EventPlace struct {
	Seq    uint64
	Stored time.Time // by the server
	Job    string
}

func placeOfEvent(msg jetstream.Msg, meta *jetstream.MsgMetadata) EventPlace {
	e, _ := parseEvent(msg.Subject(), msg.Data()) // an event that cannot be read is about no job
	job, _ := e.Data[eventJob].(string)
	return EventPlace{meta.Sequence.Stream, meta.Timestamp, job}
}

// EventsBefore passes the events before a sequence to take, newest first, until take fails; stream.ErrEnough ends it
// without an error.
func EventsBefore(ctx context.Context, js jetstream.JetStream, before uint64, take func(EventPlace) error) error {
	n := stream.Newest{JetStream: js, Stream: EventsStream, Before: before}
	_, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error { return take(placeOfEvent(msg, meta)) })
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return nil
}

// EventsAfter passes the events after a sequence to take: the stored ones first, then new ones as they are stored. It
// blocks until take fails, the stream can no longer be read, or ctx ends.
func EventsAfter(ctx context.Context, js jetstream.JetStream, after uint64, take func(EventPlace) error) error {
	source, err := js.Stream(ctx, EventsStream)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1}
	return stream.Follow(ctx, source, cfg, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		return take(placeOfEvent(msg, meta))
	})
}

// FollowEvents calls take for each event that matches f, as soon as it is stored. It starts with the events since
// f.Since, or with the next one if f.Since is zero. It blocks until ctx ends, which is no error, or take fails.
func FollowEvents(ctx context.Context, js jetstream.JetStream, f EventFilter, take func(KeptEvent) error) error {
	source, err := js.Stream(ctx, EventsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNoEvents
	} else if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{f.subject()}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: source.CachedInfo().State.LastSeq + 1,
	}
	if !f.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime, cfg.OptStartSeq = jetstream.DeliverByStartTimePolicy, &f.Since, 0
	}
	err = stream.Follow(ctx, source, cfg, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if e, ok := parseEvent(msg.Subject(), msg.Data()); ok {
			e.Seq, e.Stored = meta.Sequence.Stream, meta.Timestamp
			return take(e)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// parseEvent reads an event. It returns false if the message is not an event.
func parseEvent(subject string, data []byte) (e KeptEvent, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 5 {
		return e, false
	}
	kind, kindErr := ingest.ParseToken(parts[2])
	api, apiErr := ingest.ParseToken(parts[3])
	key, keyErr := ingest.ParseToken(parts[4])
	if errors.Join(kindErr, apiErr, keyErr) != nil {
		return e, false
	}
	var event struct {
		Data map[string]any `json:"data"`
	}
	if json.Unmarshal(data, &event) != nil {
		return e, false
	}
	return KeptEvent{Type: EventType(kind), API: api, Key: key, Data: event.Data, JSON: data}, true
}
