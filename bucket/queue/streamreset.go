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
	read := r.p.contents.readUntil()
	if connection != r.connection && read.seq > 0 {
		now, err := r.p.source.look(ctx)
		if err != nil {
			return false, err
		}
		if now.CachedInfo().State.LastSeq < read.seq {
			return true, nil
		}
	}
	if read.seq == 0 {
		r.noteIntact(connection)
		return false, nil
	}
	after := read.newest.Add(1).UTC().Format(time.RFC3339Nano)
	m, err := stream.AskLeader(ctx, r.p.source.nc, r.p.source.name,
		fmt.Sprintf(`{"start_time":%q,"next_by_subj":">"}`, after))
	if err != nil {
		return false, err
	}
	if m != nil && m.Seq <= read.seq && m.Time.After(read.newest) {
		return true, nil
	}
	r.connection = connection
	r.noteIntact(connection)
	return false, nil
}

// noteIntact notes that the losses of the connection up to number connection did not reset the stream. Finished
// messages may then be deleted.
func (r *reading) noteIntact(connection uint64) {
	r.p.contents.noteIntact(connection)
	r.p.sweeper.kick()
}

// position is how far a stream was read, and whether the stream may have been reset since. The lock of the partition's
// contents guards it.
type position struct {
	reconnects   func() uint64 // returns how often the connection was lost and came back
	readPosition               // of the last message
	before       readPosition  // when the connection was last lost; see until
	connection   uint64        // how often the connection had been lost
	intact       uint64        // the value of connection when the stream was last found not to be reset
}

// forget begins at the stream's first message.
func (p *position) forget() {
	p.readPosition, p.before = readPosition{}, readPosition{}
	p.connection = p.reconnects()
	p.intact = p.connection
}

// pass notes that a message was read.
func (p *position) pass(e Entry) {
	if connection := p.reconnects(); connection != p.connection {
		if p.connection = connection; p.before.seq == 0 {
			p.before = p.readPosition
		}
	}
	p.seq = e.Seq
	if e.Time.After(p.newest) {
		p.newest = e.Time
	}
}

// until returns how far the stream had been read when the connection was last lost, if streamReset has not checked that
// loss yet. Otherwise it returns how far the stream has been read now.
func (p *position) until() readPosition {
	if p.before.seq > 0 {
		return p.before
	}
	return p.readPosition
}

// noteIntact notes that the losses of the connection up to number connection did not reset the stream.
func (p *position) noteIntact(connection uint64) {
	if p.connection <= connection {
		p.before = readPosition{}
	}
	p.intact = max(p.intact, connection)
}

// isIntact reports whether the stream was found not to be reset since the connection was last lost.
func (p *position) isIntact() bool { return p.reconnects() == p.intact }
