package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Extent is the range of the ledger, as its leader has it. The ledger has a beginning: the server removes records by
// age, and the oldest ones when the stream is full. Nothing is known of calls before it, and a key without a record may
// still have been called. All times are by the server.
type Extent struct {
	Born        time.Time // a ledger that was created again holds other records under the same sequences
	Begins      time.Time // since when it is complete; zero if nothing was ever removed
	Asked       time.Time // when the server was asked
	First, Last uint64    // First is the oldest that is there, or the next one if it is empty
}

// ExtentOf asks for the ledger's extent.
func ExtentOf(ctx context.Context, js jetstream.JetStream) (Extent, error) {
	calls, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return Extent{}, fmt.Errorf("ledger: %w", err)
	}
	return ExtentIn(calls.CachedInfo()), nil
}

// ExtentIn returns the ledger's extent from the state of its stream.
func ExtentIn(info *jetstream.StreamInfo) Extent {
	e := Extent{Born: info.Created, Asked: info.TimeStamp, First: info.State.FirstSeq, Last: info.State.LastSeq}
	switch {
	case info.State.FirstSeq <= 1:
	case info.State.Msgs == 0:
		e.Begins = info.TimeStamp
	default:
		e.Begins = info.State.FirstTime
	}
	return e
}

// Reaches reports whether the ledger still has every record that was stored at a time or later.
func Reaches(ctx context.Context, js jetstream.JetStream, at time.Time) (bool, error) {
	e, err := ExtentOf(ctx, js)
	return err == nil && !e.Begins.After(at), err
}

// ServerSkew is how far the clocks of one cluster's servers may be apart.
const ServerSkew = 2 * time.Second
