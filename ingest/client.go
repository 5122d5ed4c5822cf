package ingest

import (
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// ingest/client defines what producers and the intake exchange. Producers import it, so it imports nothing that only a
// server needs. weir's own packages use these aliases.
type (
	// Submission is a job as its producer submits it.
	Submission = client.Submission
	// HeaderField is one header for the api.
	HeaderField = client.HeaderField
	// Client submits jobs to weir.
	Client = client.Client
	// Receipt is the promise to a producer: the job is stored.
	Receipt = client.Receipt
	// Refusal is why a job was not accepted.
	Refusal = client.Refusal
	// Code is the code of a refusal.
	Code = client.Code
	// ForeignAnswer is the error that reports that a stream answered in weir's place.
	ForeignAnswer = client.ForeignAnswer
)

// The codes of refusals.
const (
	Unsure      = client.Unsure
	Invalid     = client.Invalid
	UnknownAPI  = client.UnknownAPI
	TooLarge    = client.TooLarge
	Throttled   = client.Throttled
	Unavailable = client.Unavailable
)

// NewClient returns a client that uses nc. The caller still owns the connection.
func NewClient(nc *nats.Conn) *Client { return client.New(nc, client.Options{}) }

// ParseAnswer parses an answer of the intake. A refusal is returned as a *Refusal, a stream's answer in the intake's
// place as a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) { return client.ParseAnswer(data) }
