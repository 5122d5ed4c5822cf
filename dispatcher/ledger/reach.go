package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
)

// The ledger has a beginning: records go with their age, and the oldest ones where it is full. Of what was before nothing is
// known, and no record of a key does not mean that the key was never called.

// Beginning is since when a ledger tells everything, by its server's clock: zero where nothing was ever taken from it.
func Beginning(info *jetstream.StreamInfo) time.Time {
	switch {
	case info.State.FirstSeq <= 1:
		return time.Time{}
	case info.State.Msgs == 0:
		return info.TimeStamp
	}
	return info.State.FirstTime
}

// Reaches reports whether every record that was stored at a time or later is still in the ledger.
func Reaches(ctx context.Context, js jetstream.JetStream, at time.Time) (bool, error) {
	stream, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return false, fmt.Errorf("ledger: %w", err)
	}
	return !Beginning(stream.CachedInfo()).After(at), nil
}

// Reach is how far back the ledger's end was read. Its zero value reaches back to the very first record.
type Reach struct {
	since            bucket.Micros // by the lane's clock
	records, Results time.Time     // by the servers'
}

// Covers reports whether all that was recorded of an api at a time or later has been read.
func (t *Tail) Covers(api string, at bucket.Micros) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.Reach[api]
	return read && at >= r.since
}

// Knows reports whether what was stored of an api's calls from a time on has been read, by the servers' clock.
func (t *Tail) Knows(api string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.Reach[api]
	return read && !r.records.After(at) && !r.Results.After(at)
}

// IDsKnown is the ledger's sequence up to which the ends of all of an api's jobs are known here, 0 for none.
func (t *Tail) IDsKnown(api string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[api]
}

// keepReach notes how far back a reading got, which ended at now: where it got less far than the one before, that counts, since
// some partitions were read by the one and some by the other.
func (t *Tail) keepReach(r *Reading, api string, now bucket.Micros) {
	was, again := t.Reach[api]
	n := Reach{records: r.from, Results: r.resultsFrom}
	if !r.from.IsZero() {
		n.since = now.Add(ServerSkew - r.Began.Sub(r.from))
	}
	if again {
		n.since = max(n.since, was.since)
		if was.records.After(n.records) {
			n.records = was.records
		}
		if was.Results.After(n.Results) {
			n.Results = was.Results
		}
	}
	t.Reach[api] = n
	if r.everyID {
		t.ids[api] = r.last
	}
}

// ServerSkew is how far the clocks of one cluster's servers may be apart.
const ServerSkew = 2 * time.Second
