package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Extent is what the ledger reaches from and to, as its leader has it. A ledger has a beginning: records go with their age, and the
// oldest ones where it is full. Of what was before nothing is known, and no record of a key does not mean that the key was never
// called. All times are by the server.
type Extent struct {
	Born        time.Time // a ledger that was made anew has other records under the same sequences
	Begins      time.Time // since when it tells everything; zero where nothing was ever taken from it
	Asked       time.Time // when the server was asked
	First, Last uint64    // First is the oldest that is there, or would be
}

// ExtentOf asks for the ledger's extent.
func ExtentOf(ctx context.Context, js jetstream.JetStream) (Extent, error) {
	calls, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return Extent{}, fmt.Errorf("ledger: %w", err)
	}
	info := calls.CachedInfo()
	e := Extent{Born: info.Created, Asked: info.TimeStamp, First: info.State.FirstSeq, Last: info.State.LastSeq}
	switch {
	case info.State.FirstSeq <= 1:
	case info.State.Msgs == 0:
		e.Begins = info.TimeStamp
	default:
		e.Begins = info.State.FirstTime
	}
	return e, nil
}

// Reaches reports whether every record that was stored at a time or later is still in the ledger.
func Reaches(ctx context.Context, js jetstream.JetStream, at time.Time) (bool, error) {
	e, err := ExtentOf(ctx, js)
	return err == nil && !e.Begins.After(at), err
}

// ServerSkew is how far the clocks of one cluster's servers may be apart.
const ServerSkew = 2 * time.Second
