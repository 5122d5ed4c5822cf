package recorder

import (
	"crypto/sha256"
	"encoding/binary"
)

// Queue names the stream that a job is queued in.
type Queue [2]uint64

// QueueOf returns the Queue of a stream's name.
func QueueOf(stream string) Queue {
	sum := sha256.Sum256([]byte(stream))
	return Queue{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// Call names one call of one job, as its intent does.
type Call struct {
	Queue    Queue
	Seq      uint64 // the job's sequence
	Accepted int64  // when the stream took the job, in microseconds
	Number   int    // the call's number, counted from 1
	Epoch    uint64 // the epoch of the partition's owner
	KeySum   uint64
}

// write writes the call to an entry and clears the rest of it, except for the state, which the caller sets.
func (c *Call) write(entry []uint64, id uint64) {
	entry[wordID] = id
	entry[wordStream], entry[wordStream2] = c.Queue[0], c.Queue[1]
	entry[wordSeq], entry[wordAccepted], entry[wordNumber] = c.Seq, uint64(c.Accepted), uint64(c.Number)
	entry[wordEpoch], entry[wordKeySum] = c.Epoch, c.KeySum
	clear(entry[wordBegun:entryWords])
}

// is reports whether an entry belongs to this call.
func (c *Call) is(entry []uint64) bool {
	return entry[wordStream] == c.Queue[0] && entry[wordStream2] == c.Queue[1] && entry[wordSeq] == c.Seq &&
		entry[wordAccepted] == uint64(c.Accepted) && entry[wordNumber] == uint64(c.Number) && entry[wordEpoch] == c.Epoch &&
		entry[wordKeySum] == c.KeySum
}
