package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Extent is the range of the ledger, as its leader has it. The ledger has a beginning: the server removes records by
// age, and the oldest ones when the stream is full. Nothing is known of calls before its beginning, and a key without a
// record may have been called then. All times are by the server.
type Extent struct {
	Born        time.Time // when the ledger was created: a new ledger has other records under the same sequences
	Begins      time.Time // the time from which it is complete; zero if nothing was ever removed
	Asked       time.Time // when the server was asked
	First, Last uint64    // First is the oldest sequence that is there, or the next one if the ledger is empty
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
