package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// EventType is the kind of an event.
type EventType string

// The event types.
const (
	ThrottledEvent EventType = "throttled"
	DeadEvent      EventType = "dead"
	HeldEvent      EventType = "held"
	ResumedEvent   EventType = "resumed"
	BudgetEvent    EventType = "budget"
	ConfigEvent    EventType = "config"
	RedrivenEvent  EventType = "redriven"  // an operator redrove letters
	PurgedEvent    EventType = "purged"    // an operator deleted letters
	UnhealthyEvent EventType = "unhealthy" // a replica is not ready, or found a stream changed: a person must act
	HealthyEvent   EventType = "healthy"   // the replica is ready again
	RevealedEvent  EventType = "revealed"  // a user has read bodies of letters over HTTP
	LedgerEvent    EventType = "ledger"    // records of calls are missing
	ClockEvent     EventType = "clock"     // the clock of the limits was set, or is behind the one they were counted by
	ExcessEvent    EventType = "excess"    // the vendor counts more of a limit than weir does, or no longer does
)

// EventTypes returns all event types.
func EventTypes() []EventType {
	return []EventType{
		ThrottledEvent, DeadEvent, HeldEvent, ResumedEvent, BudgetEvent, ConfigEvent, RedrivenEvent, PurgedEvent, UnhealthyEvent, HealthyEvent,
		RevealedEvent, ClockEvent, LedgerEvent, ExcessEvent,
	}
}

// cloudEventType is the content type of a CloudEvent in structured mode.
const cloudEventType = "application/cloudevents+json"

// Event is a notification. Data must marshal to JSON and must hold no payload.
type Event struct {
	Type     EventType
	API, Key string // "" for api-wide
	Data     any
	Trace    string // the job's traceparent, if any
	ID       string // "": a new one. The stream stores an event with the same id once
}

// ThrottledData is the data of a throttled event.
type ThrottledData struct {
	Job           string `json:"job,omitempty"`
	Reason        Reason `json:"reason"`
	Detail        string `json:"detail"`
	Depth         int64  `json:"depth"`
	Capacity      int64  `json:"capacity"`
	RetryAfterMS  int64  `json:"retry_after_ms"`
	DeadLetterSeq uint64 `json:"dead_letter_seq"`
	Refusals      int    `json:"refusals,omitempty"` // so far, if this is not the job's first
}

// DeadData is the data of a dead event.
type DeadData struct {
	Job           string `json:"job,omitempty"`
	Reason        Reason `json:"reason"`
	Detail        string `json:"detail"`
	Attempts      int    `json:"attempts"`
	Status        int    `json:"status,omitempty"`
	Billed        Billed `json:"billed"`
	DeadLetterSeq uint64 `json:"dead_letter_seq"`
	Refusals      int    `json:"refusals,omitempty"` // so far, if this is not the job's first
}

// OperationData is the data of redriven and purged events.
type OperationData struct {
	Who        string `json:"who"`
	Selection  string `json:"selection"` // the filter as it was given, or the numbers of the letters; empty: all
	Letters    int    `json:"letters"`   // redriven or purged
	Overflowed int    `json:"overflowed,omitempty"`
	Refused    int    `json:"refused,omitempty"`
	Settled    int    `json:"settled,omitempty"` // letters only deleted, because their jobs had gone on
	Task       string `json:"task,omitempty"`    // the name of the redrive
}

// RevealData is the data of revealed events: a user read one letter's body, or exported letters.
type RevealData struct {
	Who           string `json:"who"`
	Job           string `json:"job,omitempty"`
	DeadLetterSeq uint64 `json:"dead_letter_seq,omitempty"`
	Selection     string `json:"selection,omitempty"` // the filter as it was given; "all letters" without one
}

// HoldData is the data of held and resumed events.
type HoldData struct {
	Until *time.Time `json:"until,omitempty"`
	Why   string     `json:"why"`
}

// Publish stores an event without a Writer, for commands. It blocks until the stream has stored the event, or ctx ends.
func (e Event) Publish(ctx context.Context, js jetstream.JetStream) error {
	if _, err := js.PublishMsg(ctx, e.message(time.Now())); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	return nil
}

// message renders the event as a CloudEvent 1.0 in structured mode, the only mode in version 1.0.2 of the NATS binding.
func (e Event) message(now time.Time) *nats.Msg {
	id := e.ID
	if id == "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	event := struct {
		SpecVersion string `json:"specversion"`
		ID          string `json:"id"`
		Source      string `json:"source"`
		Type        string `json:"type"`
		Subject     string `json:"subject,omitempty"`
		Time        string `json:"time"`
		ContentType string `json:"datacontenttype"`
		Trace       string `json:"traceparent,omitempty"`
		Data        any    `json:"data"`
	}{
		"1.0", id, "/weir/" + e.API, "weir." + string(e.Type) + ".v1", e.Key, now.UTC().Format(time.RFC3339Nano),
		"application/json", e.Trace, e.Data,
	}
	data, err := json.Marshal(event)
	if err != nil {
		panic("deadletter: an event that JSON cannot carry: " + err.Error())
	}
	return &nats.Msg{
		Subject: eventSubjects.Of(string(e.Type), e.API, e.Key), Data: data,
		Header: nats.Header{"Content-Type": {cloudEventType}, ingest.HeaderMsgID: {id}},
	}
}
