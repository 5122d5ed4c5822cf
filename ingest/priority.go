package ingest

import (
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// Priority is what Weir-Priority says of a job.
type Priority = client.Priority

// The priorities.
const (
	High   = client.High
	Normal = client.Normal
	Low    = client.Low
)

// ParsePriority parses the value of Weir-Priority.
func ParsePriority(value string) (Priority, error) { return client.ParsePriority(value) }

// PriorityOf returns the priority that a stored job's headers name. It is Normal if none can be read.
func PriorityOf(h nats.Header) Priority {
	if len(h) == 0 {
		return Normal
	}
	value := firstValue(h, HeaderPriority)
	if value == "" {
		return Normal
	}
	p, _ := client.ParsePriority(value) // an unreadable one is Normal: the intake accepts none
	return p
}
