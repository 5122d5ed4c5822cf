package ingest

import (
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// What producers and the intake tell each other stands in ingest/client, which producers import: it needs nothing that only a server
// does. Here it has the names by which weir's rooms know it.
type (
	// Submission is a job as a producer hands it in.
	Submission = client.Submission
	// HeaderField is one header for the api.
	HeaderField = client.HeaderField
	// Client hands jobs to weir.
	Client = client.Client
	// Receipt is the promise to a producer: the job is stored.
	Receipt = client.Receipt
	// Refusal is why a job was not taken.
	Refusal = client.Refusal
	// Code is what a refused producer is told.
	Code = client.Code
	// ForeignAnswer is an error: a stream has answered in weir's place.
	ForeignAnswer = client.ForeignAnswer
)

// The refusals.
const (
	Unsure      = client.Unsure
	Invalid     = client.Invalid
	UnknownAPI  = client.UnknownAPI
	TooLarge    = client.TooLarge
	Throttled   = client.Throttled
	Unavailable = client.Unavailable
)

// NewClient makes a client of a connection, which stays the caller's.
func NewClient(nc *nats.Conn) *Client { return client.New(nc, client.Options{}) }

// ParseAnswer reads what the intake answered; a refusal is a *Refusal. What a stream answered in its place is a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) { return client.ParseAnswer(data) }
