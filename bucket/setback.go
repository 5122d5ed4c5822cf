package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errSetBack says that a stream does not hold any more what was read from it.
var errSetBack = errors.New("the stream was set back: its server lost what it had stored last, and numbers new jobs as the lost ones were; it has to be read anew")

// setBack reports whether the stream was set back behind what has been read, as a power cut does to a server that had not
// synced. New jobs get sequences then that the reader has passed, and would never be called. Two signs tell:
// a message that is newer than all that was read stands before them; or, once after each time the connection was lost,
// the stream's last sequence does. The first depends on the server's clock, the second is missed where new jobs came quickly.
func (r *reading) setBack(ctx context.Context) (bool, error) {
	read, newest := r.p.readUntil()
	if read == 0 {
		return false, nil
	}
	after := newest.Add(1).UTC().Format(time.RFC3339Nano)
	m, err := AskLeader(ctx, r.p.nc, r.p.name, fmt.Sprintf(`{"start_time":%q,"next_by_subj":">"}`, after))
	if err != nil {
		return false, err
	}
	if m != nil && m.Seq <= read && m.Time.After(newest) {
		return true, nil
	}
	connection := r.p.nc.Stats().Reconnects
	if connection == r.connection {
		return false, nil
	}
	stream, err := r.p.queue.js.Stream(ctx, r.p.name)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", r.p.name, err)
	}
	r.connection = connection
	return stream.CachedInfo().State.LastSeq < read, nil
}

// readUntil is the sequence up to which the stream has been read, and when the newest message of it was stored.
func (p *Partition) readUntil() (seq uint64, newest time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sweeper.read, p.sweeper.newest
}
