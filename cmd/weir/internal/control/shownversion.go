package control

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ShownVersion is a version of the configuration as it is told: with its text, in which secrets stand by reference only.
type ShownVersion struct {
	Version uint64    `json:"version"`
	From    string    `json:"from"`
	Who     string    `json:"who"`
	At      time.Time `json:"at"`
	YAML    string    `json:"yaml"`
}

// Shown tells a version.
func (v *Version) Shown() ShownVersion { return ShownVersion{v.Number, v.From, v.Who, v.At, v.YAML} }

// PastVersion is a version of the history.
type PastVersion struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	From    string    `json:"from"`
	Changes int       `json:"changes"`         // from the version before
	Error   string    `json:"error,omitempty"` // why it cannot be read, and is not followed
}

// PastVersionOf tells an entry of the history, whether it can be read or not.
func PastVersionOf(entry jetstream.KeyValueEntry) PastVersion {
	v, err := ReadVersion(entry)
	if err != nil {
		return PastVersion{Version: entry.Revision(), At: entry.Created(), Error: "not valid: no weir follows it"}
	}
	return PastVersion{Version: v.Number, At: v.At, Who: v.Who, From: v.From, Changes: v.Changes}
}
