package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
)

// errStreamReset says that a stream no longer holds messages that were read from it, because its server lost them.
var errStreamReset = errors.New("the stream was reset: its server lost its last writes and gives their sequences to new jobs; the stream must be read again")

// readPosition is how far a stream has been read: the last sequence, and the latest time at which a message up to there
// was stored.
type readPosition struct {
	seq    uint64
	newest time.Time
}

// streamReset reports whether the stream was reset to a point before what had been read. A power cut does that to a
// server that had not synced. New jobs then get sequences that the reader has passed, and would never be called. There
// are two signs:
//
//   - The stream's last sequence is lower than what had been read before a lost connection. It is looked for once after
//     each lost connection. This sign is missing if new jobs came quickly.
//   - A message at a sequence that was already read is newer than every message that was read. This sign depends on the
//     server's clock.
func (r *reading) streamReset(ctx context.Context) (bool, error) {
	connection := r.p.reconnects()
	read := r.p.readUntil()
	if connection != r.connection && read.seq > 0 {
		stream, err := r.p.queue.js.Stream(ctx, r.p.name)
		if err != nil {
			return false, fmt.Errorf("look at %s: %w", r.p.name, err)
		}
		if stream.CachedInfo().State.LastSeq < read.seq {
			return true, nil
		}
	}
	if read.seq == 0 {
		r.p.noteIntact(connection)
		return false, nil
	}
	after := read.newest.Add(1).UTC().Format(time.RFC3339Nano)
	m, err := stream.AskLeader(ctx, r.p.nc, r.p.name, fmt.Sprintf(`{"start_time":%q,"next_by_subj":">"}`, after))
	if err != nil {
		return false, err
	}
	if m != nil && m.Seq <= read.seq && m.Time.After(read.newest) {
		return true, nil
	}
	r.connection = connection
	r.p.noteIntact(connection)
	return false, nil
}

// readUntil returns how far the stream had been read when the connection was last lost, if streamReset has not checked
// that loss yet. Otherwise it returns how far the stream has been read now.
func (p *Partition) readUntil() readPosition {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeper.before.seq > 0 {
		return p.sweeper.before
	}
	return readPosition{p.sweeper.read, p.sweeper.newest}
}

// noteIntact notes that the losses of the connection up to number connection did not reset the stream. Finished
// messages may then be deleted.
func (p *Partition) noteIntact(connection uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeper.connection <= connection {
		p.sweeper.before = readPosition{}
	}
	p.sweeper.intact = max(p.sweeper.intact, connection)
	p.sweeper.kick()
}

// passedLocked notes how far the stream has been read.
func (s *sweeper) passedLocked(e Entry) {
	if connection := s.p.reconnects(); connection != s.connection {
		if s.connection = connection; s.before.seq == 0 {
			s.before = readPosition{s.read, s.newest}
		}
	}
	s.read = e.Seq
	if e.Time.After(s.newest) {
		s.newest = e.Time
	}
}
