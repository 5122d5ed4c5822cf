package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
)

// The ledger has a beginning: records go with their age, and the oldest ones where it is full. Of what was before nothing is
// known, and no record of a key does not mean that the key was never called.

// beginning is since when a ledger tells everything, by its server's clock: zero where nothing was ever taken from it.
func beginning(info *jetstream.StreamInfo) time.Time {
	switch {
	case info.State.FirstSeq <= 1:
		return time.Time{}
	case info.State.Msgs == 0:
		return info.TimeStamp
	}
	return info.State.FirstTime
}

// LedgerReaches reports whether every record that was stored at a time or later is still in the ledger.
func LedgerReaches(ctx context.Context, js jetstream.JetStream, at time.Time) (bool, error) {
	stream, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return false, fmt.Errorf("ledger: %w", err)
	}
	return !beginning(stream.CachedInfo()).After(at), nil
}

// reach is how far back the ledger's end was read. Its zero value reaches back to the very first record.
type reach struct {
	since            bucket.Micros // by the lane's clock
	records, results time.Time     // by the servers'
}

// covers reports whether all that was recorded of an api at a time or later has been read.
func (t *tail) covers(api string, at bucket.Micros) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.reach[api]
	return read && at >= r.since
}

// knows reports whether what was stored of an api's calls from a time on has been read, by the servers' clock.
func (t *tail) knows(api string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.reach[api]
	return read && !r.records.After(at) && !r.results.After(at)
}

// idsKnown is the ledger's sequence up to which the ends of all of an api's jobs are known here, 0 for none.
func (t *tail) idsKnown(api string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[api]
}

// keepReach notes how far back a reading got, which ended at now: where it got less far than the one before, that counts, since
// some partitions were read by the one and some by the other.
func (t *tail) keepReach(r *tailReading, api string, now bucket.Micros) {
	was, again := t.reach[api]
	n := reach{records: r.from, results: r.resultsFrom}
	if !r.from.IsZero() {
		n.since = now.Add(serverSkew - r.began.Sub(r.from))
	}
	if again {
		n.since = max(n.since, was.since)
		if was.records.After(n.records) {
			n.records = was.records
		}
		if was.results.After(n.results) {
			n.results = was.results
		}
	}
	t.reach[api] = n
	if r.everyID {
		t.ids[api] = r.last
	}
}

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (l *lane) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	stream, err := l.d.opts.JetStream.Stream(ctx, CallsStream)
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	info := stream.CachedInfo()
	begins := beginning(info)
	if begins.IsZero() {
		return 0, nil
	}
	begun := l.now().Add(serverSkew - info.TimeStamp.Sub(begins))
	if free := begun.Add(drain); free > l.now() {
		l.mu.Lock()
		told := l.shortTold
		l.shortTold = true
		l.mu.Unlock()
		if !told {
			l.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}
