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
	// Batch is several jobs of one api in one message.
	Batch = client.Batch
	// BatchAnswer is weir's answer to one job of a batch.
	BatchAnswer = client.Answer
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

// MaxBatch bounds the jobs of one batch.
const MaxBatch = client.MaxBatch

// ErrNoAnswer says that it is unknown whether a job was accepted. Errors that say so wrap it.
var ErrNoAnswer = client.ErrNoAnswer

// NewBatch returns a batch without jobs.
func NewBatch(api string) *Batch { return client.NewBatch(api) }

// SizeInBatch returns how many bytes a job takes at most in a batch.
func SizeInBatch(m *nats.Msg) int { return client.SizeInBatch(m) }

// BatchEnvelope bounds the headers of a batch's message, in bytes.
const BatchEnvelope = client.BatchEnvelope

// ParseBatch parses the answer to a batch of so many jobs.
func ParseBatch(data []byte, jobs int) ([]BatchAnswer, error) { return client.ParseBatch(data, jobs) }

// ParseAnswer parses an answer of the intake. A refusal is returned as a *Refusal, a stream's answer in the intake's
// place as a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) { return client.ParseAnswer(data) }
